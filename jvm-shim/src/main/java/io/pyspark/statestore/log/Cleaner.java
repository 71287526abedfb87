package io.pyspark.statestore.log;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Unlinks merged files in which nothing lives (rule 6), and has live segments moved out of those in which little does.
 * Runs on Spark's maintenance threads, at most once per interval
 * and process, and holds no lock that a commit needs.
 */
final class Cleaner {
  private static final Logger LOG = LoggerFactory.getLogger(Cleaner.class);
  private static final long INTERVAL_NANOS = 10_000_000_000L;

  private final LogContext context;
  private final Refresher refresher;
  private final DurableTombstones writer;
  private final Relocator relocator;
  private final Consumer<MergedFile> onGone;
  private final ReentrantLock running = new ReentrantLock();
  private volatile long lastRunNanos = System.nanoTime() - INTERVAL_NANOS;

  Cleaner(
      LogContext context,
      Refresher refresher,
      Relocator relocator,
      DurableTombstones writer,
      Consumer<MergedFile> onGone) {
    this.context = context;
    this.relocator = relocator;
    this.refresher = refresher;
    this.onGone = onGone;
    this.writer = writer;
  }

  /** Writes tombstones and returns when they are durable. */
  interface DurableTombstones {
    void write(List<Tombstone> tombstones) throws IOException;
  }

  /** Cleans where the last time is long enough ago and nobody else is at it. */
  void runIfDue() {
    if (System.nanoTime() - lastRunNanos >= INTERVAL_NANOS && running.tryLock()) {
      try {
        if (System.nanoTime() - lastRunNanos >= INTERVAL_NANOS) {
          clean();
        }
      } finally {
        lastRunNanos = System.nanoTime();
        running.unlock();
      }
    }
  }

  /** Cleans now; how many files went. */
  int run() {
    running.lock();
    try {
      return clean();
    } finally {
      running.unlock();
    }
  }

  private int clean() {
    int gone = 0;
    MaintenanceReport report = MaintenanceReport.begin(context);
    try {
      refresher.refresh();
      gone = unlinkDead();
      if (context.options().compactionEnabled()) {
        relocator.run();
        gone += unlinkDead();
      }
    } catch (IOException | RuntimeException e) {
      // Rule 8: when in doubt, delete nothing.
      LOG.warn("Cleaning of {} stopped; it is tried again at the next maintenance", context.checkpoint(), e);
      report.stopped();
    }
    report.end();
    return gone;
  }

  private int unlinkDead() throws IOException {
    List<MergedFile> dead = context.index().filesWithoutLiveSegments().stream()
        .filter(f -> f.isClosed(context.nowMs(), context.options().closedAfterMs()) && f.wholeIndexRead())
        .filter(f -> !f.isIndexOnly())
        .toList();
    if (dead.isEmpty()) {
      return 0;
    }
    // What is dead only by a deletion that nobody could read yet would come back if this process died now.
    if (!context.tombstones().allDurable()) {
      writer.write(List.of());
    }
    if (!context.tombstones().allDurable()) {
      return 0;
    }
    for (MergedFile file : dead) {
      unlink(file);
    }
    return dead.size();
  }

  private void unlink(MergedFile file) throws IOException {
    List<Tombstone> needed = context.index().tombstonesToCarryOver(file);
    if (!needed.isEmpty()) {
      writer.write(needed);
      context.metrics().carriedOver(needed.size());
    }
    try {
      context.storage().delete(file.name());
    } catch (IOException e) {
      context.metrics().deleteFailed();
      throw e;
    }
    context.metrics().unlinked();
    context.index().remove(file);
    onGone.accept(file);
  }
}
