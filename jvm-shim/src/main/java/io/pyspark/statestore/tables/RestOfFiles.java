package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Parallel;
import java.io.IOException;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fetches what is missing of a store's SSTs of which look-ahead has asked for half, as fast as a load would: as long as
 * a file has holes, look-ahead has RocksDB look for each row before the operator reads it.
 *
 * <p>Nobody waits for it: whoever needs a part of it meanwhile fetches that beside it. So it may end at any time, with
 * the task, the version, or a failure. What is left then is the {@link Hydrator}'s, which knows the file, too.
 */
final class RestOfFiles {
  private static final Logger LOG = LoggerFactory.getLogger(RestOfFiles.class);

  /** What a thread has in memory at a time. */
  private static final int PART = 1 << 20;

  private record Rest(PartialFile file, BooleanSupplier isOver) {}

  private final RequestCosts costs;
  private final Queue<Rest> rests = new ConcurrentLinkedQueue<>();
  private final AtomicInteger workers = new AtomicInteger();

  /** Of a store whose requests cost so much. */
  RestOfFiles(RequestCosts costs) {
    this.costs = costs;
  }

  /**
   * Begins with a file.
   *
   * @param isOver asked before each part
   */
  void fetch(PartialFile file, Executor threads, BooleanSupplier isOver) {
    rests.add(new Rest(file, isOver));
    long parts = (file.missing() + PART - 1) / PART;
    for (int i = 0; i < parts && begin(threads); i++) {
      // Each of them takes one part after the other.
    }
  }

  private boolean begin(Executor threads) {
    if (workers.incrementAndGet() <= Parallel.READS) {
      try {
        threads.execute(this::run);
        return true;
      } catch (RejectedExecutionException | OutOfMemoryError e) {
        LOG.debug("No thread is left for the rest of what look-ahead has asked for", e);
      }
    }
    workers.decrementAndGet();
    return false;
  }

  private void run() {
    try {
      for (Rest rest = rests.peek(); rest != null; rest = rests.peek()) {
        if (!fetchPart(rest)) {
          rests.remove(rest);
        }
      }
    } finally {
      workers.decrementAndGet();
    }
  }

  /** Whether there may be another one. */
  private boolean fetchPart(Rest rest) {
    try {
      return !rest.isOver.getAsBoolean() && rest.file.fetchSome(PART, costs.bridge()) > 0;
    } catch (IOException | RuntimeException | OutOfMemoryError e) {
      LOG.debug("{} is completed more slowly", rest.file.path(), e);
      return false;
    }
  }
}
