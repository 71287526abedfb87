package io.pyspark.statestore.service;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Runs work in threads of which what waits for the same thing gets a few. So a file system that does not answer stops
 * the work that waits for it, and no other, however much of it there is.
 */
public final class FairThreads {
  private static final Logger LOG = LoggerFactory.getLogger(FairThreads.class);

  private final Executor threads;
  private final int most;

  /** What waits for something for which as many threads work as may. There is a list while any thread works for it. */
  private final Map<Object, Deque<Runnable>> waiting = new HashMap<>();

  private final Map<Object, Integer> running = new HashMap<>();

  /**
   * @param threads starts as many threads as are needed
   * @param most threads that work for one thing at the same time
   */
  public FairThreads(Executor threads, int most) {
    this.threads = threads;
    this.most = most;
  }

  /** Runs something that may wait for {@code what}. */
  public void execute(Object what, Runnable work) {
    synchronized (this) {
      int now = running.getOrDefault(what, 0);
      if (now == most) {
        waiting.computeIfAbsent(what, w -> new ArrayDeque<>()).add(work);
        return;
      }
      running.put(what, now + 1);
    }
    try {
      threads.execute(() -> runAll(what, work));
    } catch (RuntimeException | Error e) {
      // A process at its limit of threads has an OutOfMemoryError here.
      synchronized (this) {
        ended(what);
      }
      throw e;
    }
  }

  private void runAll(Object what, Runnable first) {
    Runnable work = first;
    while (work != null) {
      try {
        work.run();
      } catch (RuntimeException | Error e) {
        LOG.warn("Work for {} failed. What to do: if it goes on, report it with this stack trace", what, e);
      }
      synchronized (this) {
        Deque<Runnable> left = waiting.get(what);
        work = left == null ? null : left.poll();
        if (work == null) {
          ended(what);
        }
      }
    }
  }

  private void ended(Object what) {
    waiting.computeIfPresent(what, (w, left) -> left.isEmpty() ? null : left);
    running.computeIfPresent(what, (w, now) -> now == 1 ? null : now - 1);
  }

  /** For how many things threads work now. */
  public synchronized int things() {
    return running.size();
  }
}
