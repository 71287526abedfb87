package io.pyspark.statestore.files;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;

/** Runs tasks on shared threads, a bounded number of them at a time. */
public final class Parallel {
  /**
   * So many ranges, or ends of files, one load reads at the same time. An object store takes long to begin an answer,
   * so one after the other would wait for most of the time; and all tasks of a process load side by side, each with so
   * many connections. The same as {@code READ_PARALLELISM} in Python's {@code storage/directory.py}.
   */
  public static final int READS = 8;

  private Parallel() {}

  /**
   * Starts the tasks and returns their futures in the same order. Where no thread can be started, the current one does
   * them: a process at its limit of threads has an OutOfMemoryError, and somebody waits for each future.
   */
  public static <T> List<FutureTask<T>> start(Executor threads, int width, List<Callable<T>> tasks) {
    List<FutureTask<T>> futures = tasks.stream().map(FutureTask::new).toList();
    Queue<FutureTask<T>> waiting = new ConcurrentLinkedQueue<>(futures);
    for (int i = 0; i < Math.min(width, futures.size()); i++) {
      try {
        threads.execute(() -> runAll(waiting));
      } catch (RejectedExecutionException | OutOfMemoryError e) {
        if (i == 0) {
          runAll(waiting);
        }
        break;
      }
    }
    return futures;
  }

  /**
   * Runs tasks, and returns what they return, in the same order.
   *
   * @param what is done, for the message of whoever is interrupted
   * @throws IOException of the first that fails; others that have not begun are given up then
   */
  public static <T> List<T> all(Executor threads, int width, List<Callable<T>> tasks, String what) throws IOException {
    List<FutureTask<T>> started = start(threads, width, tasks);
    List<T> results = new ArrayList<>();
    try {
      for (FutureTask<T> each : started) {
        results.add(each.get());
      }
      return results;
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException io ? io : new IOException(e.getCause());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while " + what);
    } finally {
      // Whoever is interrupted, or has a failure, waits for the others no more.
      started.forEach(each -> each.cancel(false));
    }
  }

  /** Runs tasks as {@link #all} does, and adds up what they return. */
  public static int sum(Executor threads, int width, List<Callable<Integer>> tasks, String what) throws IOException {
    return all(threads, width, tasks, what).stream().mapToInt(Integer::intValue).sum();
  }

  private static <T> void runAll(Queue<FutureTask<T>> waiting) {
    for (FutureTask<T> next = waiting.poll(); next != null; next = waiting.poll()) {
      next.run();
    }
  }
}
