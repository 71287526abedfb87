package io.pyspark.statestore.write;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.index.LogicalPaths;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * Decides how long a group waits for more commits. Where each group costs a file, it waits for as many partitions as
 * tasks run side by side in this process, and for all that have a stream open for writing. So tasks go on in step and
 * share a file each time. On every file system a file waits for its checksum file.
 */
final class CommitWindow {
  /** Spark closes a file and its checksum file at the same time, from two threads. */
  private static final long CHECKSUM_PAIR_NANOS = 10_000_000;

  private static final long MIN_AUTOMATIC_NANOS = 50_000_000;
  private static final long MAX_AUTOMATIC_NANOS = 200_000_000;

  /** What is open for writing. The keys are weak, so a stream that is never closed is not waited for. */
  private final Map<Object, OpenStream> open = new WeakHashMap<>();

  private final Supplier<Options> options;
  private final IntSupplier expectedPartitions;
  private final LongSupplier recentWriteNanos;
  private volatile boolean groupsAreFiles;

  /**
   * A stream that is open for writing.
   *
   * @param thread id of the thread that opened it
   * @param isUpload whether Spark's maintenance writes it, for which no task waits
   */
  private record OpenStream(String path, long thread, boolean isUpload) {}

  /**
   * @param expectedPartitions how many partitions may commit at the same time in this process
   * @param recentWriteNanos how long writing a group takes at present
   */
  CommitWindow(Supplier<Options> options, IntSupplier expectedPartitions, LongSupplier recentWriteNanos) {
    this.options = options;
    this.expectedPartitions = expectedPartitions;
    this.recentWriteNanos = recentWriteNanos;
  }

  /** Says whether each group costs a file, because the file system cannot flush an open one. */
  void groupsAreFiles(boolean value) {
    groupsAreFiles = value;
  }

  synchronized void opened(Object stream, String path) {
    open.put(stream, new OpenStream(path, Thread.currentThread().getId(), Threads.isMaintenance()));
  }

  /** The stream's commit is queued, or will never be. */
  synchronized void left(Object stream) {
    open.remove(stream);
    notifyAll();
  }

  /** A commit was queued. */
  synchronized void arrived() {
    notifyAll();
  }

  /** Waits until all commits that should share a group have come, or for as long as is allowed. */
  synchronized void await(Supplier<List<Commit>> queued) {
    long start = System.nanoTime();
    long patience = patienceNanos();
    while (true) {
      long waited = System.nanoTime() - start;
      long left = 0;
      if (waited < patience && othersMayCome(queued.get())) {
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

  private boolean othersMayCome(List<Commit> queued) {
    Set<String> here =
        queued.stream()
            .flatMap(c -> c.items().stream())
            .map(item -> LogicalPaths.partition(item.path()))
            .collect(Collectors.toSet());
    // A task closes the streams of its stores one after the other, so those of a partition that is here do not count.
    // A heap store's snapshot stays open while its rows are gone through, so only uploads wait for uploads.
    boolean waitsForUploads = queued.stream().allMatch(Commit::isUpload);
    return here.size() < expectedPartitions.getAsInt()
        || open.values().stream()
            .anyMatch(s -> (waitsForUploads || !s.isUpload) && !here.contains(LogicalPaths.partition(s.path)));
  }

  private long patienceNanos() {
    Options now = options.get();
    if (!now.groupCommitIsAutomatic()) {
      return TimeUnit.MILLISECONDS.toNanos(now.groupCommitMaxWaitMs());
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
        String pair = LogicalPaths.pairOf(item.path());
        for (OpenStream stream : open.values()) {
          // A thread that opened both closes one after the other, so waiting would gain nothing.
          if (stream.path.equals(pair) && stream.thread != commit.openedBy()) {
            return true;
          }
        }
      }
    }
    return false;
  }
}
