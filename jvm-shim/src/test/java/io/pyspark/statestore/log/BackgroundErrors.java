package io.pyspark.statestore.log;

import io.pyspark.statestore.files.Parallel;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.tables.OpenStores;
import io.pyspark.statestore.write.BatchCommits;
import io.pyspark.statestore.write.BatchDebts;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.Path;

/** What a thread of the background leaves behind when something is thrown in it, or when it cannot be started. */
public final class BackgroundErrors {
  private static final int PATIENCE_SECONDS = 20;
  private static final AtomicInteger OUT_OF_MEMORY = new AtomicInteger();

  private BackgroundErrors() {}

  /** Starts no thread for the first so many calls. */
  private record FailingThreads(ExecutorService threads, AtomicInteger failures) implements Executor {
    FailingThreads(int failures) {
      this(Executors.newCachedThreadPool(Threads.daemons("background-errors")), new AtomicInteger(failures));
    }

    @Override
    public void execute(Runnable task) {
      if (failures.getAndDecrement() > 0) {
        throw new OutOfMemoryError("unable to create native thread");
      }
      threads.execute(task);
    }
  }

  /** Runs tasks where so many threads cannot be started; returns how many came to an end. */
  public static int parallel(int failures) throws Exception {
    List<Callable<Integer>> tasks = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      tasks.add(() -> 1);
    }
    int ended = 0;
    for (FutureTask<Integer> each : Parallel.start(new FailingThreads(failures), 3, tasks)) {
      ended += each.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }
    return ended;
  }

  /** Says in vain that something is owed to a batch, because no thread can be started, and then says it again. */
  public static boolean batchBeginsAnew() throws Exception {
    CountDownLatch over = new CountDownLatch(1);
    BatchCommits commits =
        new BatchCommits(driver(new CountDownLatch(1), over, 0), all -> {}, new FailingThreads(1), "of a test");
    try {
      commits.batch("run", 1);
      return false;
    } catch (IOException e) {
      BatchCommits.Batch again = commits.batch("run", 1);
      FutureTask<Void> waits =
          new FutureTask<>(
              () -> {
                again.awaitOwed();
                return null;
              });
      Thread thread = new Thread(waits);
      thread.setDaemon(true);
      thread.start();
      waits.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
      return over.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }
  }

  /** Pays what is owed to a batch, where an error comes when it is asked for; returns whether it was paid. */
  public static boolean batchIsPaid() throws Exception {
    CountDownLatch paid = new CountDownLatch(1);
    BatchCommits commits = new BatchCommits(driver(paid, paid, 1), all -> {}, new FailingThreads(0), "of a test");
    commits.batch("run", 1).awaitOwed();
    return paid.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  private static BatchCommits.Driver driver(CountDownLatch paid, CountDownLatch over, int errors) {
    AtomicInteger left = new AtomicInteger(errors);
    return new BatchCommits.Driver() {
      @Override
      public void owes(String run, long batch) {}

      @Override
      public BatchDebts.Call call(String run, long batch) {
        if (left.getAndDecrement() > 0) {
          throw new OutOfMemoryError("of a test");
        }
        return BatchDebts.Call.WRITE;
      }

      @Override
      public void paid(String run, long batch, String failure) {
        paid.countDown();
        over.countDown();
      }
    };
  }

  /** The housekeeper of this process runs out of memory so many times, when it looks for logs that nobody uses. */
  public static Object housekeeperFails(int times) {
    OUT_OF_MEMORY.set(times);
    Object manager = new Object();
    OpenStores.opened(
        manager,
        new Path("/nowhere") {
          private static final long serialVersionUID = 1L;

          @Override
          public boolean equals(Object other) {
            if (StackWalker.getInstance().walk(all -> all.anyMatch(f -> f.getMethodName().equals("isForgettable")))
                && OUT_OF_MEMORY.getAndUpdate(left -> Math.max(0, left - 1)) > 0) {
              throw new OutOfMemoryError("of a test");
            }
            return false;
          }

          @Override
          public int hashCode() {
            return 0;
          }
        },
        "0/0");
    return manager;
  }

  /** How many of these errors are still to come. */
  public static int left() {
    return OUT_OF_MEMORY.get();
  }

  /** No more of them. */
  public static void end(Object manager) {
    OUT_OF_MEMORY.set(0);
    MergedLogs.managerClosed(manager);
  }
}
