package io.pyspark.statestore.log;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSError;

/**
 * Holds merged files open for reading, one handle each, so that loading a checkpoint opens each file at most once. All
 * positioned reads share a handle.
 */
final class FileHandles {
  private static final long IDLE_NANOS = 30_000_000_000L;

  /** How often a read is tried, each time through a new handle. */
  private static final int ATTEMPTS = 3;

  private final Storage storage;
  private final Rules rules;
  private final Map<String, Handle> handles = new ConcurrentHashMap<>();

  private static final class Handle {
    /** Held while the file is opened, which may take long. */
    private final ReentrantLock opening = new ReentrantLock();
    private FSDataInputStream in;
    /** It was removed from the map, so the thread that still reads through it closes it. */
    private volatile boolean abandoned;
    private volatile long usedNanos = System.nanoTime();
    /**
     * Bytes that the handle can see. Of a file that is open on HDFS, those that were flushed when the handle was made.
     */
    private long visible;
  }

  FileHandles(Storage storage, Rules rules) {
    this.storage = storage;
    this.rules = rules;
  }

  /**
   * Reads exactly {@code length} bytes of a merged file.
   *
   * @throws FileNotFoundException where the file no longer exists
   */
  void readFully(MergedFile file, long position, byte[] buffer, int offset, int length) throws IOException {
    Handle handle = handles.computeIfAbsent(file.name(), n -> new Handle());
    FSDataInputStream in = null;
    for (int attempt = 1; in == null; attempt++) {
      in = read(handle, file, position, buffer, offset, length, attempt == ATTEMPTS);
    }
    if (handle.abandoned) {
      discard(handle, in);
    }
  }

  /** Reads; returns null where another try through a new handle may succeed. */
  private FSDataInputStream read(
      Handle handle, MergedFile file, long position, byte[] buffer, int offset, int length, boolean isLast)
      throws IOException {
    FSDataInputStream in = use(handle, file, position + length);
    try {
      in.readFully(position, buffer, offset, length);
      return in;
    } catch (IOException | FSError e) {
      // Another thread may have closed the handle: one that was interrupted with its task, or because it was idle.
      // Hadoop's local file system reports that as an Error. Or the file has grown since it was opened, and ABFS
      // refuses to read on.
      discard(handle, in);
      if (isLast || e instanceof FileNotFoundException || Thread.currentThread().isInterrupted()) {
        throw e instanceof IOException io ? io : new IOException(e);
      }
      return null;
    }
  }

  private FSDataInputStream use(Handle handle, MergedFile file, long upTo) throws IOException {
    handle.opening.lock();
    try {
      handle.usedNanos = System.nanoTime();
      if (handle.in == null || handle.visible < upTo) {
        FSDataInputStream old = handle.in;
        // A file of another checkpoint is never taken from a living writer.
        boolean isClosed = !file.isForeign() && rules.isClosed(file);
        handle.in = storage.openUnclosed(file.name(), isClosed, rules.options().closedAfterMs());
        handle.visible = Math.max(file.size(), upTo);
        closeQuietly(old);
      }
      return handle.in;
    } finally {
      handle.opening.unlock();
    }
  }

  private static void discard(Handle handle, FSDataInputStream in) {
    handle.opening.lock();
    try {
      if (handle.in == in) {
        handle.in = null;
      }
      closeQuietly(in);
    } finally {
      handle.opening.unlock();
    }
  }

  /** Closes a file's handle, without waiting for an opening that hangs. */
  void close(String name) {
    Handle handle = handles.remove(name);
    if (handle == null) {
      return;
    }
    handle.abandoned = true;
    if (handle.opening.tryLock()) {
      try {
        closeQuietly(handle.in);
        handle.in = null;
      } finally {
        handle.opening.unlock();
      }
    }
  }

  void closeIdle() {
    long now = System.nanoTime();
    handles.forEach((name, handle) -> {
      if (now - handle.usedNanos > IDLE_NANOS) {
        close(name);
      }
    });
  }

  void closeAll() {
    handles.keySet().forEach(this::close);
  }

  private static void closeQuietly(FSDataInputStream in) {
    if (in != null) {
      try {
        in.close();
      } catch (IOException e) {
        // It was open for reading only, so nothing is lost.
      }
    }
  }
}
