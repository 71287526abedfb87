package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Parallel;
import java.io.IOException;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fetches what is missing of SSTs of which half is here, once look-ahead has asked for many of a store's rows, faster
 * than the {@link Hydrator} does: as long as a file has holes, look-ahead has RocksDB look for each row before the
 * operator reads it. Where few rows are asked for, that costs less than what would come for nothing.
 *
 * <p>Nobody waits for it: whoever needs a part of it meanwhile fetches that beside it. So it may end at any time, with
 * the task, the version, or a failure. What is left then is the {@link Hydrator}'s, which knows the file, too.
 */
final class RestOfFiles {
  private static final Logger LOG = LoggerFactory.getLogger(RestOfFiles.class);

  /** What a thread has in memory at a time. A whole megabyte would take two of the parts in which G1 has its heap. */
  private static final int PART = 960 << 10;

  /** Of this process, however many stores it has. */
  private static final int MOST_THREADS = 2 * Parallel.READS;

  private static final Queue<Rest> RESTS = new ConcurrentLinkedQueue<>();
  private static final Semaphore PLACES = new Semaphore(MOST_THREADS);

  private record Rest(PartialFile file, RequestCosts costs, BooleanSupplier isOver) {}

  private RestOfFiles() {}

  /**
   * Begins with a file.
   *
   * @param costs of requests for parts of it
   * @param isOver asked before each part
   */
  static void fetch(PartialFile file, RequestCosts costs, Executor threads, BooleanSupplier isOver) {
    long parts = (file.missing() + PART - 1) / PART;
    Rest rest = new Rest(file, costs, isOver);
    RESTS.add(rest);
    int begun = 0;
    while (begun < parts && begin(threads)) {
      // Each of them takes one part after the other.
      begun++;
    }
    if (begun == 0 && PLACES.availablePermits() == MOST_THREADS && RESTS.remove(rest)) {
      // Nobody would come by: there is nothing to do, or no thread for it.
      file.restIsOver();
    }
  }

  /** How many files wait for a thread, or for the end of their parts. */
  static int waiting() {
    return RESTS.size();
  }

  private static boolean begin(Executor threads) {
    if (!PLACES.tryAcquire()) {
      return false;
    }
    try {
      threads.execute(RestOfFiles::run);
      return true;
    } catch (RejectedExecutionException | OutOfMemoryError e) {
      PLACES.release();
      LOG.debug("No thread is left for the rest of what look-ahead has asked for", e);
      return false;
    }
  }

  private static void run() {
    do {
      for (Rest rest = RESTS.peek(); rest != null; rest = RESTS.peek()) {
        if (!fetchPart(rest)) {
          RESTS.remove(rest);
        }
      }
      PLACES.release();
      // Of what has come since the last look nobody else may know.
    } while (!RESTS.isEmpty() && PLACES.tryAcquire());
  }

  /** Whether there may be another one. What fails here must end no thread: Spark would end the process with it. */
  private static boolean fetchPart(Rest rest) {
    try {
      if (rest.isOver.getAsBoolean()) {
        rest.file.restIsOver();
        return false;
      }
      return rest.file.fetchSome(PART, rest.costs.bridge()) > 0;
    } catch (IOException | RuntimeException | Error e) {
      LOG.debug("{} is completed more slowly", rest.file.path(), e);
      return false;
    }
  }
}
