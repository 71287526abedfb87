package io.pyspark.statestore.read;

import io.pyspark.statestore.index.MergedFile;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Reads small objects whole, once for all partitions that have something in them. After a restart each task reads a few
 * kilobytes of the same objects, a request each time, and a request takes as long as reading several MiB.
 *
 * <p>Only files that are sealed are kept, so what is kept never changes. A file that cannot be read whole is read as
 * any other file, which also says what is wrong with it.
 */
final class SmallFiles {
  /** Reading so much takes a tenth of the time that a request waits for its first byte. */
  static final int WHOLE = 512 * 1024;

  private static final long MAX_HELD = 16L << 20;
  private static final long IDLE_NANOS = 10_000_000_000L;

  /** Reads a whole file. */
  interface Reader {
    void readFully(MergedFile file, byte[] buffer) throws IOException;
  }

  private final Reader reader;
  private final Map<String, Held> held = new ConcurrentHashMap<>();
  private final AtomicLong bytesHeld = new AtomicLong();

  private static final class Held {
    private final FutureTask<byte[]> bytes;
    private final int size;
    private volatile long usedNanos = System.nanoTime();

    Held(FutureTask<byte[]> bytes, int size) {
      this.bytes = bytes;
      this.size = size;
    }
  }

  SmallFiles(Reader reader) {
    this.reader = reader;
  }

  /** Returns false where the bytes have to be read from the file. */
  boolean read(MergedFile file, long position, byte[] buffer, int offset, int length) throws IOException {
    if (!file.isSealed() || file.size() > WHOLE || position + length > file.size()) {
      return false;
    }
    int size = (int) file.size();
    Held mine = new Held(new FutureTask<>(() -> readWhole(file, size)), size);
    Held first = held.putIfAbsent(file.name(), mine);
    if (first == null) {
      bytesHeld.addAndGet(size);
      dropLongestUnused();
    }
    Held use = first == null ? mine : first;
    use.usedNanos = System.nanoTime();
    // Only the first one reads. It may have failed before, and the others must not wait for it then.
    use.bytes.run();
    try {
      System.arraycopy(use.bytes.get(), (int) position, buffer, offset, length);
      return true;
    } catch (ExecutionException e) {
      drop(file.name(), use);
      if (e.getCause() instanceof FileNotFoundException gone) {
        throw gone;
      }
      return false;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while reading " + file.name());
    }
  }

  private byte[] readWhole(MergedFile file, int size) throws IOException {
    byte[] bytes = new byte[size];
    reader.readFully(file, bytes);
    return bytes;
  }

  /** Forgets a file. */
  void close(String name) {
    Held there = held.get(name);
    if (there != null) {
      drop(name, there);
    }
  }

  void closeIdle() {
    long now = System.nanoTime();
    held.forEach(
        (name, each) -> {
          if (now - each.usedNanos > IDLE_NANOS) {
            drop(name, each);
          }
        });
  }

  void closeAll() {
    held.forEach(this::drop);
  }

  private void dropLongestUnused() {
    while (bytesHeld.get() > MAX_HELD) {
      Map.Entry<String, Held> oldest = null;
      for (Map.Entry<String, Held> each : held.entrySet()) {
        if (oldest == null || each.getValue().usedNanos - oldest.getValue().usedNanos < 0) {
          oldest = each;
        }
      }
      if (oldest == null) {
        return;
      }
      drop(oldest.getKey(), oldest.getValue());
    }
  }

  private void drop(String name, Held each) {
    if (held.remove(name, each)) {
      bytesHeld.addAndGet(-each.size);
    }
  }
}
