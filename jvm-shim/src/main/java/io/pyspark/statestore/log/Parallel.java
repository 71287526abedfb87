package io.pyspark.statestore.log;

import java.util.List;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;

/** Runs tasks on shared threads, a bounded number of them at a time. */
final class Parallel {
  private Parallel() {}

  /** Starts the tasks and returns their futures in the same order. */
  static <T> List<FutureTask<T>> start(Executor threads, int width, List<Callable<T>> tasks) {
    List<FutureTask<T>> futures = tasks.stream().map(FutureTask::new).toList();
    Queue<FutureTask<T>> waiting = new ConcurrentLinkedQueue<>(futures);
    for (int i = 0; i < Math.min(width, futures.size()); i++) {
      threads.execute(() -> {
        for (FutureTask<T> next = waiting.poll(); next != null; next = waiting.poll()) {
          next.run();
        }
      });
    }
    return futures;
  }
}
