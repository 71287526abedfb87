package io.pyspark.statestore.heap;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.Unchecked;
import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The {@link SpillFile}s of one heap store.
 *
 * <p>A file is full at some size, and another one follows. A full file is let go of when versions have nothing of it
 * any more: who reads one of its buckets all the same keeps it open. Where all files together have more than twice of
 * what versions have, those files are given up of which versions have half or less: what they have is written anew, or
 * comes back into memory where the disk takes nothing.
 *
 * <p>After an error of the disk nothing is written for a minute. A file that could not be read is not given up: what is
 * in it would be lost.
 *
 * <p>One thread at a time writes, counts and gives up; any thread reads.
 */
final class SpillFiles {
  private static final Logger LOG = LoggerFactory.getLogger(SpillFiles.class);

  private static final int AVERAGED_READS = 16;

  /** After an error of the disk nothing is written for so long. */
  private static final long REST_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final Path directory;
  private final String store;
  private final Set<SpillFile> files = new LinkedHashSet<>();
  private final Set<SpillFile> unreadable = new HashSet<>();
  private SpillFile current;
  private volatile long bytes;
  private volatile long writtenBytes;
  private final AtomicLong reads = new AtomicLong();

  /** How long a read takes, on the average of the last ones. Threads may overwrite each other's. */
  private volatile long readNanos;

  private volatile long restUntilNanos = System.nanoTime();

  /**
   * None so far.
   *
   * @param directory where they are, on the local disk
   * @param store what messages call the store
   */
  SpillFiles(Path directory, String store) {
    this.directory = directory;
    this.store = store;
  }

  /** None so far, of a store in this process. They are on one of the disks that Spark has; stores share these out. */
  static SpillFiles ofExecutor(String store) {
    SparkEnv env = SparkEnv.get();
    if (env == null) {
      return new SpillFiles(Path.of(System.getProperty("java.io.tmpdir")), store);
    }
    File[] disks = env.blockManager().diskBlockManager().localDirs();
    return new SpillFiles(disks[Math.floorMod(store.hashCode(), disks.length)].toPath(), store);
  }

  /** Bytes that they have on the disk. */
  long bytes() {
    return bytes;
  }

  /** Bytes of buckets that were written. */
  long writtenBytes() {
    return writtenBytes;
  }

  /** How many buckets were read, other than to be written anew. */
  long reads() {
    return reads.get();
  }

  /** How long a read takes, on the average of the last ones. */
  long readNanos() {
    return readNanos;
  }

  /** Whether buckets may be written: not after an error of the disk. */
  boolean areReady() {
    return System.nanoTime() - restUntilNanos >= 0;
  }

  /** An error of the disk: nothing is written for a while. */
  void rest(IOException why) {
    restUntilNanos = System.nanoTime() + REST_NANOS;
    LOG.warn(
        "Rows of {} cannot be moved to {}; they stay where they are, and it is tried again in a minute. What to do:"
            + " make room on that disk, or set spark.local.dir to another one",
        store,
        directory,
        why);
  }

  SpilledBucket append(byte[] bucket, SpillOwner owner) throws IOException {
    if (current == null || current.isFull()) {
      current = SpillFile.in(directory, owner);
      files.add(current);
    }
    SpilledBucket spilled = current.append(bucket);
    bytes += bucket.length;
    current.live += bucket.length;
    writtenBytes += bucket.length;
    return spilled;
  }

  /** Reads a bucket, and checks it. */
  byte[] read(SpilledBucket bucket) {
    try {
      long began = System.nanoTime();
      byte[] found = bucket.file().read(bucket);
      readNanos += (System.nanoTime() - began - readNanos) / AVERAGED_READS;
      reads.incrementAndGet();
      return found;
    } catch (IOException e) {
      throw Unchecked.raise(
          new StateStoreFilesException(
              Id.PSS_HEAP_SPILL_FAILED,
              "Rows of "
                  + store
                  + " that were moved to "
                  + bucket.file()
                  + " (offset "
                  + bucket.offset()
                  + ", "
                  + bucket.length()
                  + " bytes) cannot be read: "
                  + e.getMessage()
                  + ". The checkpoint has them. What to do: look at that disk, and start the query again;"
                  + " heap.spill=off keeps all rows in memory",
              e));
    }
  }

  /** Whether they have more than twice of the bytes that versions have, and two full files. */
  boolean areLargeFor(long live) {
    return bytes > 2 * live + 2L * SpillFile.fullBytes;
  }

  /** The files of which versions have least. Where the disk is full, no more than may well be in memory instead. */
  Set<SpillFile> toGiveUp() {
    Set<SpillFile> found = new HashSet<>();
    long most = areReady() ? Long.MAX_VALUE : SpillFile.fullBytes / 4;
    List<SpillFile> byLive = files.stream().sorted(Comparator.comparingLong(each -> each.live)).toList();
    for (SpillFile file : byLive) {
      boolean isFull = file != current && file.isFull();
      if (isFull && !unreadable.contains(file) && 2 * file.live <= file.length() && file.live <= most) {
        found.add(file);
        most -= file.live;
      }
    }
    return found;
  }

  /**
   * A bucket of a file that is given up.
   *
   * @return where it is now, or the bucket where the disk takes nothing, or what it was where it cannot be read
   */
  Object copied(SpilledBucket bucket, SpillOwner owner) {
    byte[] found;
    try {
      found = bucket.file().read(bucket);
    } catch (IOException e) {
      if (unreadable.add(bucket.file())) {
        LOG.warn(
            "Rows of {} in {} cannot be read; the query fails when it needs them. What to do: look at that disk",
            store,
            bucket.file(),
            e);
      }
      return bucket;
    }
    try {
      return areReady() ? append(found, owner) : found;
    } catch (IOException e) {
      rest(e);
      return found;
    }
  }

  /**
   * Versions were counted. Full files of which they have nothing are let go of. One that they have something of comes
   * back: it may have been let go of while a version that has it was not known.
   *
   * @param live bytes that they have of each file
   */
  void have(Map<SpillFile, Long> live) {
    files.addAll(live.keySet());
    files.forEach(file -> file.live = live.getOrDefault(file, 0L));
    files.removeIf(file -> file != current && file.isFull() && file.live == 0);
    bytes = files.stream().mapToLong(SpillFile::length).sum();
  }

  /** Whether it has not let go of a file. */
  boolean has(SpillFile file) {
    return files.contains(file);
  }

  /** Lets go of all of them. */
  void close() {
    files.clear();
    unreadable.clear();
    current = null;
    bytes = 0;
  }
}
