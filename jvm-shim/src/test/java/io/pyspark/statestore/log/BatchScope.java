package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.service.ServiceMessages;
import io.pyspark.statestore.write.BatchCommits;
import io.pyspark.statestore.write.BatchDebts;
import io.pyspark.statestore.write.LogOutputStream;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.TaskEnd;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Executors whose commits become durable at the end of their batch, and their driver, in one process. A caller says
 * what tasks do, which executor dies, and when Spark would enter a batch into the commit log.
 */
public final class BatchScope implements AutoCloseable {
  private static final long OWES_MS = 30;
  private static final String RUN_THREAD = "batch-scope";

  private final FileSystem fs;
  private final Path state;
  private final Options options;
  private final java.nio.file.Path local;
  private final ThreadFactory daemons = Threads.daemons(RUN_THREAD);
  private final ThreadPoolExecutor threads =
      new ThreadPoolExecutor(0, 1_000, 60, TimeUnit.SECONDS, new SynchronousQueue<>(), this::thread);
  private volatile boolean isOutOfThreads;
  private final MergedLog driver;
  private final List<Executor> executors = new ArrayList<>();
  private volatile String run = "run-0";
  private volatile long sinceNanos = System.nanoTime();
  private final Set<Long> commitLog = ConcurrentHashMap.newKeySet();

  /**
   * @param state directory on {@code fs}
   */
  public BatchScope(FileSystem fs, Path state, Configuration conf) throws IOException {
    this.fs = fs;
    this.state = state;
    this.options = Options.from(conf);
    this.local = Files.createTempDirectory("batch-scope");
    driver = new MergedLog(fs, state, options, facts(TaskEnd.NONE), threads, null, run, "");
    driver.serve();
  }

  private Thread thread(Runnable work) {
    if (isOutOfThreads) {
      throw new OutOfMemoryError("unable to create native thread");
    }
    return daemons.newThread(work);
  }

  /** Whether the processes are at their limit of threads. */
  public void outOfThreads(boolean are) throws InterruptedException {
    isOutOfThreads = are;
    if (are) {
      threads.setKeepAliveTime(1, TimeUnit.MILLISECONDS);
      while (threads.getPoolSize() > threads.getActiveCount()) {
        Thread.sleep(5);
      }
    }
  }

  private ProcessFacts facts(TaskEnd taskEnd) {
    return new ProcessFacts(Map::of, () -> local, () -> 1, 60_000, taskEnd);
  }

  /** Payloads of all processes that are on the local disk. */
  public int spilled() throws IOException {
    try (Stream<java.nio.file.Path> files = Files.list(local)) {
      return (int) files.filter(file -> file.toString().endsWith(".spill")).count();
    }
  }

  /** A process that runs tasks, one after the other. */
  private final class Executor implements TaskEnd {
    private final List<Wait> waits = new ArrayList<>();
    private final List<Runnable> failures = new ArrayList<>();
    private volatile boolean isDead;
    private volatile boolean losesPayments;
    private volatile long asksAfterMs;
    private volatile long batch;
    private MergedLog log = open();

    private MergedLog open() {
      try {
        return new MergedLog(fs, state, options, facts(this), threads, this::send, run, "");
      } catch (IOException e) {
        throw new IllegalStateException(e);
      }
    }

    private CompletableFuture<byte[]> send(byte[] question) throws IOException {
      ServiceMessages.Question asked = ServiceMessages.question(question);
      if (isDead || losesPayments && asked instanceof ServiceMessages.Paid) {
        throw new IOException("the test has killed the executor");
      }
      if (asked instanceof ServiceMessages.Owes) {
        // Late enough for a task that does not wait to end before.
        sleep(OWES_MS);
      } else if (asked instanceof ServiceMessages.AskCall) {
        sleep(asksAfterMs);
      }
      CompletableFuture<byte[]> answer = MergedLogs.answer(question, this, (directory, queryRun) -> driver);
      return answer.thenApply(
          bytes -> {
            if (isDead) {
              throw new IllegalStateException("the test has killed the executor");
            }
            return bytes;
          });
    }

    private static void sleep(long ms) throws IOException {
      try {
        Thread.sleep(ms);
      } catch (InterruptedException e) {
        throw new IOException(e);
      }
    }

    @Override
    public boolean waitsFor(Wait last) {
      waits.add(last);
      return true;
    }

    @Override
    public long batch() {
      return batch;
    }

    @Override
    public void ifFails(Runnable action) {
      failures.add(action);
    }
  }

  /** Starts an executor; returns its number. */
  public int start() {
    executors.add(new Executor());
    return executors.size() - 1;
  }

  /** The query is restarted: the next tasks are of another run. */
  public void restart(String newRun) {
    run = newRun;
    sinceNanos = System.nanoTime();
  }

  /** Somebody takes the newest entries out of the commit log, so that their batches are computed again. */
  public void goBack(long batch) {
    commitLog.removeIf(entered -> entered >= batch);
  }

  /** The next tasks are of another run, which is not the one that ends batches. */
  public void ofRun(String other) {
    run = other;
  }

  /** Spark says that a run has ended. */
  public static void runEnded(String ended) {
    MergedLogs.runEnded(ended);
  }

  /** Runs a task that commits a logical file; returns why it failed, or null. */
  public String task(int number, long batch, String path, byte[] bytes) {
    return task(number, batch, path, bytes, false);
  }

  /** As {@link #task}, and the task fails after its commit. */
  public void failingTask(int number, long batch, String path, byte[] bytes) {
    task(number, batch, path, bytes, true);
  }

  private String task(int number, long batch, String path, byte[] bytes, boolean fails) {
    Executor executor = executors.get(number);
    executor.batch = batch;
    executor.waits.clear();
    executor.failures.clear();
    try {
      // Two attempts begin in different milliseconds, so the later one has the higher stamp, whoever made it.
      Executor.sleep(2);
      try (LogOutputStream out = executor.log.create(path, run)) {
        out.write(bytes, 0, bytes.length);
      }
      if (fails) {
        throw new IOException("the test fails the task");
      }
      for (TaskEnd.Wait wait : executor.waits) {
        wait.await();
      }
      return null;
    } catch (IOException e) {
      executor.failures.forEach(Runnable::run);
      end(executor);
      return e.toString();
    }
  }

  /** The last task of an executor fails after all, as one that is killed when another attempt of it has ended. */
  public void failLate(int number) {
    executors.get(number).failures.forEach(Runnable::run);
  }

  /** What waits for the end of a task does so in one that failed, too. */
  private static void end(Executor executor) {
    for (TaskEnd.Wait wait : executor.waits) {
      try {
        wait.await();
      } catch (IOException e) {
        // The task has failed already.
      }
    }
  }

  /** An executor dies, with all that it has not written. The driver may hear of that or not. */
  public void kill(int number, boolean isHeardOf) {
    Executor executor = executors.get(number);
    executor.isDead = true;
    if (isHeardOf) {
      MergedLogs.lost(executor);
    }
    executor.log.abandon();
  }

  /** An executor opens its log anew, and forgets what it has not written. */
  public void reopen(int number) {
    Executor executor = executors.get(number);
    executor.log.abandon();
    executor.log = executor.open();
  }

  /** An executor is slow to ask whether its batch ends, so that it writes after the others. */
  public void asksLate(int number) {
    executors.get(number).asksAfterMs = 300;
  }

  /** What an executor says of its payments does not arrive any more. */
  public void losePayments(int number) {
    executors.get(number).losesPayments = true;
  }

  /** Spark makes the entry of a batch in the commit log; returns why that failed, or null. */
  public String endBatch(long batch, long patienceMs) {
    boolean isEntered = false;
    try {
      if (MergedLogs.batchEnds(state.toString(), batch)) {
        MergedLogs.awaitBatch(state.toString(), sinceNanos, batch, patienceMs);
      }
      isEntered = true;
      return null;
    } catch (IOException e) {
      return e.toString();
    } finally {
      commitLog.removeIf(entered -> entered >= batch);
      if (isEntered) {
        commitLog.add(batch);
      }
      MergedLogs.batchEnded(state.toString(), batch, isEntered ? commitLog::contains : null);
    }
  }

  /** As {@link #endBatch}, of a query that is stopped after so long. */
  public String endBatchInterrupted(long batch, long afterMs) throws InterruptedException {
    AtomicReference<String> outcome = new AtomicReference<>();
    Thread thread = new Thread(() -> outcome.set(endBatch(batch, 60_000)));
    thread.start();
    Thread.sleep(afterMs);
    thread.interrupt();
    thread.join();
    return outcome.get();
  }

  /** What somebody reads who sees only the files; null where there is nothing. */
  public byte[] durable(String path) throws IOException {
    MergedLog fresh = new MergedLog(fs, state, options, facts(TaskEnd.NONE), threads, null, "", "");
    Segment found = fresh.find(path);
    if (found == null) {
      return null;
    }
    try (FSInputStream in = fresh.open(found)) {
      return in.readAllBytes();
    }
  }

  /** How many threads wait for batches to end, or work. */
  public int busyThreads() {
    return threads.getActiveCount();
  }

  /** Of how many checkpoints the driver remembers debts, or that they are paid. */
  public static int remembered() {
    return BatchDebts.remembered();
  }

  /** Has the logs of a checkpoint opened anew, as another process would. */
  public static void forget(String checkpoint) {
    MergedLogs.forgetBelow(new Path("file:" + checkpoint));
  }

  /** How many threads of this process wait for batches to end. */
  public static long waiting() {
    return Thread.getAllStackTraces().values().stream()
        .filter(
            frames ->
                Stream.of(frames)
                    .anyMatch(
                        frame ->
                            frame.getClassName().equals(BatchCommits.class.getName())
                                && frame.getMethodName().equals("serve")))
        .count();
  }

  /** Whether the driver's index has a logical file. */
  public boolean isKnown(String path) {
    return driver.find(path) != null;
  }

  @Override
  public void close() {
    executors.forEach(executor -> executor.log.abandon());
    driver.abandon();
    threads.shutdown();
  }
}
