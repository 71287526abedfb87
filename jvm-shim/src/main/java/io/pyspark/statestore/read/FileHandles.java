package io.pyspark.statestore.read;

import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSError;

/**
 * Holds merged files open for reading. On HDFS and a local disk a file has one stream, which all positioned reads
 * share, so that loading a checkpoint opens each file at most once. On an object store a stream does one read after the
 * other, so each read that is under way has a stream of its own; there, opening costs nothing, and {@link SmallFiles}
 * are read whole.
 */
public final class FileHandles {
  private static final long IDLE_NANOS = 30_000_000_000L;

  /** How often a read is tried, each time through a new stream. */
  private static final int ATTEMPTS = 3;

  private final Storage storage;
  private final Rules rules;
  private final Map<String, Handle> handles = new ConcurrentHashMap<>();
  private final SmallFiles small = new SmallFiles((file, buffer) -> readFrom(file, 0, buffer, 0, buffer.length));

  private static final class Handle {
    /** Held while a stream that is shared is opened, which may take long. */
    private final ReentrantLock opening = new ReentrantLock();

    private Stream shared;

    /** Streams of an object store that are not in use. */
    private final Deque<Stream> idle = new ConcurrentLinkedDeque<>();

    /** It was removed from the map, so the thread that still reads through it closes it. */
    private volatile boolean abandoned;

    private volatile long usedNanos = System.nanoTime();
  }

  /**
   * An open file.
   *
   * @param visible bytes that it can see. Of a file that is open on HDFS, those that were flushed when it was opened
   */
  private record Stream(FSDataInputStream in, long visible) {}

  public FileHandles(Storage storage, Rules rules) {
    this.storage = storage;
    this.rules = rules;
  }

  /**
   * Reads exactly {@code length} bytes of a merged file.
   *
   * @throws FileNotFoundException where the file no longer exists
   */
  void readFully(MergedFile file, long position, byte[] buffer, int offset, int length) throws IOException {
    if (!storage.isObjectStore() || !small.read(file, position, buffer, offset, length)) {
      readFrom(file, position, buffer, offset, length);
    }
  }

  private void readFrom(MergedFile file, long position, byte[] buffer, int offset, int length) throws IOException {
    Handle handle = handles.computeIfAbsent(file.name(), n -> new Handle());
    Stream stream = null;
    for (int attempt = 1; stream == null; attempt++) {
      stream = read(handle, file, position, buffer, offset, length, attempt);
    }
    if (storage.isObjectStore()) {
      // Lets go of the connection, of which there are fewer than files.
      stream.in.unbuffer();
      handle.idle.push(stream);
    }
    if (handle.abandoned) {
      discard(handle, stream);
    }
  }

  /** Reads; returns null where another try through a new stream may succeed. */
  private Stream read(Handle handle, MergedFile file, long position, byte[] buffer, int offset, int length, int attempt)
      throws IOException {
    Stream stream =
        storage.isObjectStore()
            ? own(handle, file, position + length, attempt == 1)
            : shared(handle, file, position + length);
    try {
      stream.in.readFully(position, buffer, offset, length);
      return stream;
    } catch (IOException | FSError e) {
      // Another thread may have closed the stream: one that was interrupted with its task, or because it was idle.
      // Hadoop's local file system reports that as an Error. Or the file has grown since it was opened, and ABFS
      // refuses to read on.
      discard(handle, stream);
      if (attempt == ATTEMPTS || e instanceof FileNotFoundException || Thread.currentThread().isInterrupted()) {
        throw e instanceof IOException io ? io : new IOException(e);
      }
      return null;
    }
  }

  /** A stream that no other thread uses. */
  private Stream own(Handle handle, MergedFile file, long upTo, boolean isFirstAttempt) throws IOException {
    handle.usedNanos = System.nanoTime();
    Stream idle = isFirstAttempt ? handle.idle.poll() : null;
    if (idle != null && idle.visible >= upTo) {
      return idle;
    }
    closeQuietly(idle);
    return open(file, upTo, isFirstAttempt && file.isSealed() ? file.size() : -1);
  }

  private Stream shared(Handle handle, MergedFile file, long upTo) throws IOException {
    handle.opening.lock();
    try {
      handle.usedNanos = System.nanoTime();
      if (handle.shared == null || handle.shared.visible < upTo) {
        Stream old = handle.shared;
        handle.shared = open(file, upTo, -1);
        closeQuietly(old);
      }
      return handle.shared;
    } finally {
      handle.opening.unlock();
    }
  }

  private Stream open(MergedFile file, long upTo, long wholeLength) throws IOException {
    long visible = Math.max(file.size(), upTo);
    // A file of another checkpoint is never taken from a living writer.
    boolean isClosed = !file.isForeign() && rules.isClosed(file);
    long patience = rules.options().closedAfterMs();
    return new Stream(storage.openUnclosed(file.name(), isClosed, patience, wholeLength), visible);
  }

  private static void discard(Handle handle, Stream stream) {
    handle.opening.lock();
    try {
      if (handle.shared == stream) {
        handle.shared = null;
      }
      handle.idle.remove(stream);
      closeQuietly(stream);
    } finally {
      handle.opening.unlock();
    }
  }

  /** Closes a file's handle, without waiting for an opening that hangs. */
  public void close(String name) {
    small.close(name);
    Handle handle = handles.remove(name);
    if (handle == null) {
      return;
    }
    handle.abandoned = true;
    for (Stream idle = handle.idle.poll(); idle != null; idle = handle.idle.poll()) {
      closeQuietly(idle);
    }
    if (handle.opening.tryLock()) {
      try {
        closeQuietly(handle.shared);
        handle.shared = null;
      } finally {
        handle.opening.unlock();
      }
    }
  }

  public void closeIdle() {
    small.closeIdle();
    long now = System.nanoTime();
    handles.forEach(
        (name, handle) -> {
          if (now - handle.usedNanos > IDLE_NANOS) {
            close(name);
          }
        });
  }

  public void closeAll() {
    small.closeAll();
    handles.keySet().forEach(this::close);
  }

  private static void closeQuietly(Stream stream) {
    if (stream != null) {
      try {
        stream.in.close();
      } catch (IOException e) {
        // It was open for reading only, so nothing is lost.
      }
    }
  }
}
