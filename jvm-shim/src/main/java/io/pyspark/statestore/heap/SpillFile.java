package io.pyspark.statestore.heap;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.ref.Cleaner;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32C;

/**
 * A file of spilled buckets, one after the other. One thread appends, and any thread reads.
 *
 * <p>It loses its name as soon as it is open, so nothing of it is left when its process dies, however that happens. It
 * is closed when nothing refers to it any more: whoever still has a bucket of an old version, such as an iterator, can
 * read it.
 */
final class SpillFile {
  /** A file that has more is full. Tests have smaller ones. */
  static volatile int fullBytes = 32 << 20;

  private static final Cleaner CLEANER = Cleaner.create(SpillFile::daemon);

  private final SpillOwner owner;

  /** Not a channel: the interruption of a task that waits for a channel would close it for all. Guarded by itself. */
  private final RandomAccessFile file;

  private final String name;
  private int end;

  /** Bytes of buckets that versions have, as of the last count. For the thread that spills. */
  long live;

  private SpillFile(SpillOwner owner, RandomAccessFile file, String name) {
    this.owner = owner;
    this.file = file;
    this.name = name;
  }

  /** Makes a file in a directory. */
  static SpillFile in(Path directory, SpillOwner owner) throws IOException {
    Files.createDirectories(directory);
    Path path = Files.createTempFile(directory, "heap-spill-", ".buckets");
    RandomAccessFile opened;
    try {
      opened = new RandomAccessFile(path.toFile(), "rw");
    } finally {
      if (!path.toFile().delete()) {
        // A system that does not let go of the names of open files.
        path.toFile().deleteOnExit();
      }
    }
    SpillFile made = new SpillFile(owner, opened, path.toString());
    CLEANER.register(made, () -> close(opened));
    return made;
  }

  private static Thread daemon(Runnable task) {
    Thread thread = new Thread(task, "pyspark-statestore-spill-files");
    thread.setDaemon(true);
    return thread;
  }

  private static void close(RandomAccessFile file) {
    try {
      file.close();
    } catch (IOException e) {
      // All of it was read and written, or nobody wants it any more.
    }
  }

  SpillOwner owner() {
    return owner;
  }

  boolean isFull() {
    return end >= fullBytes;
  }

  /** How many bytes it has on the disk. */
  int length() {
    return end;
  }

  /** Appends a bucket. After an error the file has what it had before. */
  SpilledBucket append(byte[] bucket) throws IOException {
    int offset = end;
    synchronized (file) {
      file.seek(offset);
      file.write(bucket);
    }
    end = Math.addExact(offset, bucket.length);
    return new SpilledBucket(this, offset, bucket, crc32c(bucket));
  }

  /**
   * Reads a bucket.
   *
   * @throws IOException if it cannot be read, or is not what was written
   */
  byte[] read(SpilledBucket bucket) throws IOException {
    byte[] found = new byte[bucket.length()];
    synchronized (file) {
      file.seek(bucket.offset());
      file.readFully(found);
    }
    if (crc32c(found) != bucket.crc32c()) {
      throw new IOException("The bytes there are not those that were written");
    }
    return found;
  }

  private static int crc32c(byte[] bytes) {
    CRC32C crc = new CRC32C();
    crc.update(bytes);
    return (int) crc.getValue();
  }

  @Override
  public String toString() {
    return name;
  }
}
