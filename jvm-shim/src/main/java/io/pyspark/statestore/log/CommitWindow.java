package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * Decides for how long a group waits for more commits. Where each group costs a file, it waits for as many partitions as
 * tasks run side by side in this process, and for all that have a stream open for writing, so that tasks go on in step and
 * share a file each time. Everywhere a file waits for its checksum file.
 */
final class CommitWindow {
  private static final String CHECKSUM = ".crc";
  /** Spark closes a file and its checksum file at the same time, from two threads. */
  private static final long CHECKSUM_PAIR_NANOS = 10_000_000;

  private static final long MIN_AUTOMATIC_NANOS = 50_000_000;
  private static final long MAX_AUTOMATIC_NANOS = 200_000_000;

  /** What is open and by which thread; weak, so that a stream that nobody ever closed is not waited for. */
  private final Map<Object, OpenStream> open = new WeakHashMap<>();

  private final LongSupplier recentWriteNanos;
  private volatile boolean groupsAreFiles;

  /** @param isUpload whether it is Spark's maintenance that writes it, at its leisure */
  private record OpenStream(String path, long thread, boolean isUpload) {}

  CommitWindow(LongSupplier recentWriteNanos) {
    this.recentWriteNanos = recentWriteNanos;
  }

  /** On a file system without hflush each group costs a file, and is worth waiting for. */
  void groupsAreFiles(boolean value) {
    groupsAreFiles = value;
  }

  synchronized void opened(Object stream, String path) {
    open.put(stream, new OpenStream(path, Thread.currentThread().getId(), MaintenanceThreads.isCurrent()));
  }

  /** The stream's commit is queued, or will never be. */
  synchronized void left(Object stream) {
    open.remove(stream);
    notifyAll();
  }

  synchronized void arrived() {
    notifyAll();
  }

  /** Waits until all have come who should share a group with {@code queued}, or for as long as is allowed. */
  synchronized void awaitFor(Supplier<List<Commit>> queued, Options options, IntSupplier expectedPartitions) {
    long start = System.nanoTime();
    long patience = patienceNanos(options);
    while (true) {
      long waited = System.nanoTime() - start;
      long left = 0;
      if (waited < patience && othersMayCome(queued.get(), expectedPartitions.getAsInt())) {
        left = patience - waited;
      } else if (waited < CHECKSUM_PAIR_NANOS && checksumPairIsOpen(queued.get())) {
        left = CHECKSUM_PAIR_NANOS - waited;
      }
      if (left <= 0) {
        return;
      }
      try {
        wait(left / 1_000_000, (int) (left % 1_000_000));
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return;
      }
    }
  }

  private boolean othersMayCome(List<Commit> queued, int expectedPartitions) {
    Set<String> here = queued.stream()
        .flatMap(c -> c.items().stream())
        .map(item -> MergedLog.partition(item.path()))
        .collect(Collectors.toSet());
    // A task closes the streams of its stores one after the other: those of who is here already do not count.
    // A snapshot of a heap store is open for as long as its rows are gone through: no task waits for that.
    boolean waitsForUploads = MaintenanceThreads.isCurrent();
    return here.size() < expectedPartitions
        || open.values().stream()
            .anyMatch(v -> (waitsForUploads || !v.isUpload) && !here.contains(MergedLog.partition(v.path)));
  }

  private long patienceNanos(Options options) {
    if (!options.groupCommitIsAutomatic()) {
      return options.groupCommitMaxWaitMs() * 1_000_000;
    }
    if (!groupsAreFiles) {
      return 0;
    }
    // Waiting as long as a write takes at most doubles a commit's time, and halves the files at least.
    return Math.max(MIN_AUTOMATIC_NANOS, Math.min(MAX_AUTOMATIC_NANOS, recentWriteNanos.getAsLong()));
  }

  private boolean checksumPairIsOpen(List<Commit> queued) {
    if (open.isEmpty()) {
      return false;
    }
    for (Commit commit : queued) {
      for (Commit.Item item : commit.items()) {
        String pair = checksumPairOf(item.path());
        for (OpenStream stream : open.values()) {
          // One thread that opened both closes them one after the other: waiting for it would be for nothing.
          if (stream.path.equals(pair) && stream.thread != commit.openedBy()) {
            return true;
          }
        }
      }
    }
    return false;
  }

  private static String checksumPairOf(String path) {
    return path.endsWith(CHECKSUM) ? path.substring(0, path.length() - CHECKSUM.length()) : path + CHECKSUM;
  }
}
