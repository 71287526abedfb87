package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.service.ServiceMessages;
import io.pyspark.statestore.write.LogOutputStream;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.TaskEnd;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** An executor's log whose reports are held back on their way to the driver's log. */
public final class HeldReports implements AutoCloseable {
  private static final String RUN = "run";
  private static final long CALL_SECONDS = 60;

  private final MergedLog driver;
  private final MergedLog executor;
  private final ExecutorService threads = Executors.newCachedThreadPool(Threads.daemons("held-reports"));
  private final List<Held> held = new ArrayList<>();
  private final List<TaskEnd.Wait> waits = new ArrayList<>();
  private boolean holds;
  private volatile boolean hasTask = true;

  /** A report that has not arrived. */
  private record Held(byte[] report, CompletableFuture<byte[]> answer) {}

  /**
   * @param state directory on {@code fs}
   */
  public HeldReports(FileSystem fs, Path state, Configuration conf) throws IOException {
    Options options = Options.from(conf);
    java.nio.file.Path local = Files.createTempDirectory("held-reports");
    ProcessFacts facts = new ProcessFacts(Map::of, () -> local, () -> 1, 60_000, this::waitsFor);
    driver = new MergedLog(fs, state, options, facts, threads, null, RUN, "");
    driver.serve();
    executor = new MergedLog(fs, state, options, facts, threads, this::send, RUN, "");
  }

  private synchronized CompletableFuture<byte[]> send(byte[] question) throws IOException {
    if (holds && isReport(question)) {
      CompletableFuture<byte[]> answer = new CompletableFuture<>();
      held.add(new Held(question, answer));
      notifyAll();
      return answer;
    }
    return CompletableFuture.completedFuture(answer(question));
  }

  /** Whether a question to the service is the report of a group. */
  public static boolean isReport(byte[] question) throws IOException {
    return ServiceMessages.question(question) instanceof ServiceMessages.Report;
  }

  private byte[] answer(byte[] question) {
    return MergedLogs.answer(question, this, (directory, run) -> driver).join();
  }

  private synchronized boolean waitsFor(TaskEnd.Wait last) {
    if (hasTask) {
      waits.add(last);
    }
    return hasTask;
  }

  /** Holds reports back from now on. */
  public synchronized void hold() {
    holds = true;
  }

  /** Whether commits are those of a task, which can wait when it ends. */
  public void hasTask(boolean has) {
    hasTask = has;
  }

  /** Waits for so many reports to be held at the same time. */
  public synchronized void awaitHeld(int reports) throws InterruptedException, TimeoutException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CALL_SECONDS);
    while (held.size() < reports) {
      long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
      if (left <= 0) {
        throw new TimeoutException(held.size() + " reports");
      }
      wait(left);
    }
  }

  /** How many reports are held. */
  public synchronized int held() {
    return held.size();
  }

  /** The reports that are held arrive. */
  public synchronized void arrive() {
    held.forEach(each -> each.answer.complete(answer(each.report)));
    held.clear();
  }

  /** The reports that are held are lost. */
  public synchronized void lose() {
    held.forEach(each -> each.answer.completeExceptionally(new IOException("lost by the test")));
    held.clear();
  }

  /** Begins to commit a logical file in a thread of its own. */
  public Future<Void> commit(String path, byte[] bytes) {
    return threads.submit(
        () -> {
          try (LogOutputStream out = executor.create(path)) {
            out.write(bytes, 0, bytes.length);
          }
          return null;
        });
  }

  /** Begins to delete a logical file, and to write the deletion. */
  public Future<Void> delete(String path) {
    executor.delete(path);
    return commit(path + "-beside.changelog", new byte[1]);
  }

  /** Begins to end the task. */
  public Future<Void> endTask() {
    List<TaskEnd.Wait> all;
    synchronized (this) {
      all = List.copyOf(waits);
      waits.clear();
    }
    return threads.submit(
        () -> {
          for (TaskEnd.Wait wait : all) {
            wait.await();
          }
          return null;
        });
  }

  /** Whether the driver knows a logical file. */
  public boolean isKnown(String path) {
    return driver.find(path) != null;
  }

  /** Waits for what was begun; returns why it failed, or null where it did not. */
  public static String outcome(Future<Void> begun) throws InterruptedException, TimeoutException {
    try {
      begun.get(CALL_SECONDS, TimeUnit.SECONDS);
      return null;
    } catch (ExecutionException e) {
      return e.getCause().toString();
    }
  }

  @Override
  public void close() {
    synchronized (this) {
      holds = false;
    }
    arrive();
    executor.abandon();
    driver.abandon();
    threads.shutdown();
  }
}
