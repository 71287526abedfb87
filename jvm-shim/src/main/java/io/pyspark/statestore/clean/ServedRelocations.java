package io.pyspark.statestore.clean;

import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.write.PendingTombstones;
import io.pyspark.statestore.write.ServedPartitions;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Moves live segments of the partitions that this executor has written to, out of the files that the index service
 * names. Only the service knows how much garbage a file holds.
 */
public final class ServedRelocations {
  private static final Logger LOG = LoggerFactory.getLogger(ServedRelocations.class);

  /**
   * Spark deletes one partition's old versions after the other's. What is moved before may be deleted a moment later.
   */
  private static final long QUIET_MS = 100;

  private final Asks service;
  private final String checkpoint;
  private final ServedPartitions served;
  private final PendingTombstones tombstones;
  private final Garbage garbage;
  private final Relocator relocator;
  private final Rules rules;
  private final long intervalMs;
  private final Executor threads;
  private final AtomicBoolean running = new AtomicBoolean();
  private volatile long lastNanos = System.nanoTime();

  /** Asks the service out of which files to move live segments of partitions. */
  public interface Asks {
    Garbage.Moves moves(List<String> partitions) throws IOException;
  }

  /**
   * @param service is asked what to move
   * @param checkpoint for messages
   * @param intervalMs between two questions to the service
   * @param threads copy what is moved
   */
  ServedRelocations(
      Asks service,
      String checkpoint,
      ServedPartitions served,
      PendingTombstones tombstones,
      Garbage garbage,
      Relocator relocator,
      Rules rules,
      long intervalMs,
      Executor threads) {
    this.service = service;
    this.checkpoint = checkpoint;
    this.served = served;
    this.tombstones = tombstones;
    this.garbage = garbage;
    this.relocator = relocator;
    this.rules = rules;
    this.intervalMs = intervalMs;
    this.threads = threads;
  }

  /** Asks the service and moves, if the last time is long enough ago. Returns at once. */
  public void runIfDue() {
    boolean due = (System.nanoTime() - lastNanos) / 1_000_000 >= intervalMs && tombstones.quietMs() >= QUIET_MS;
    if (due && rules.options().compactionEnabled() && running.compareAndSet(false, true)) {
      try {
        threads.execute(this::run);
      } catch (RuntimeException | Error e) {
        running.set(false);
        throw e;
      }
    }
  }

  private void run() {
    try {
      List<String> partitions = served.writtenSince(rules.options().closedAfterMs());
      if (!partitions.isEmpty()) {
        Garbage.Moves moves = service.moves(partitions);
        relocator.run(() -> garbage.plan(moves));
      }
    } catch (IOException | RuntimeException | Error e) {
      LOG.info("Moving live segments of {} stopped; trying again", checkpoint, e);
    } finally {
      lastNanos = System.nanoTime();
      running.set(false);
    }
  }
}
