package io.pyspark.statestore.log;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * What processes owe to the batches of one checkpoint, in the driver: commits that Spark's tasks have ended with, and
 * that are not durable yet (option {@code groupCommit.scope=batch}).
 *
 * <p>A process says that it owes something before the first of its tasks in a batch ends. Spark enters a batch into its
 * commit log after all its tasks have ended, so every debt of the batch is known by then. The entry is held back until
 * all are paid: until each process has made its commits durable and reported them. Where one cannot be paid, because a
 * process was lost or could not write, the entry is not made, and the query fails. Its next run computes the batch
 * again, from the state of the batch before, which is durable.
 *
 * <p>Debts do not end with a log or an epoch of the index service, so what is owed is never forgotten with them.
 */
final class BatchDebts {
  private static final Map<String, BatchDebts> ALL = new ConcurrentHashMap<>();

  /** A process that waits to be called asks so often; the driver counts it as lost after three times that. */
  static final long ASK_MS = 20_000;

  private static final long PATIENCE_NANOS = TimeUnit.MILLISECONDS.toNanos(3 * ASK_MS);

  private final String checkpoint;
  private final Map<Long, Debt> byWriter = new LinkedHashMap<>();
  /** The run and the batch of which the debts were collected last. */
  private String collectedRun = "";
  private long collected = -1;

  /** What a process hears that waits for the end of its batch. */
  enum Call {
    /** The batch ends: write. */
    WRITE,
    /** It goes on: ask again. */
    WAIT,
    /** Nobody waits for these commits any more. */
    FORGET
  }

  private static final class Debt {
    private final String run;
    private final long batch;
    private final Object sender;
    /** Of the process's question, until it is answered; else null. */
    private CompletableFuture<Call> asks;
    private boolean isCalled;
    private boolean isPaid;
    private String failure;
    private long heardNanos = System.nanoTime();

    private Debt(String run, long batch, Object sender) {
      this.run = run;
      this.batch = batch;
      this.sender = sender;
    }

    private boolean isOf(String otherRun, long otherBatch) {
      return batch == otherBatch && run.equals(otherRun);
    }

    private void call() {
      isCalled = true;
      if (asks != null) {
        asks.complete(Call.WRITE);
      }
    }
  }

  private BatchDebts(String stateDirectory) {
    this.checkpoint = stateDirectory.substring(0, Math.max(0, stateDirectory.lastIndexOf('/')));
  }

  static BatchDebts of(String stateDirectory) {
    return ALL.computeIfAbsent(stateDirectory, BatchDebts::new);
  }

  static boolean isOwed(String stateDirectory) {
    BatchDebts debts = ALL.get(stateDirectory);
    return debts != null && debts.isOwed();
  }

  private synchronized boolean isOwed() {
    return !byWriter.isEmpty();
  }

  /** A connection is lost. What came over it and is not paid never will be. */
  static void lost(Object sender) {
    ALL.values().forEach(debts -> debts.lostSender(sender));
  }

  /**
   * A process owes commits to a batch.
   *
   * @param sender the connection over which it says so
   * @throws IOException where the batch has ended, so that the task does not count
   */
  synchronized void owes(long writer, String run, long batch, Object sender) throws IOException {
    if (run.equals(collectedRun) && batch <= collected) {
      throw new IOException("batch " + batch + " of " + checkpoint + " has ended without this task");
    }
    Debt known = byWriter.get(writer);
    if (known == null || !known.isOf(run, batch)) {
      byWriter.put(writer, new Debt(run, batch, sender));
    }
  }

  /** What a process that owes should do, when it is known, or after {@link #ASK_MS}. */
  synchronized CompletableFuture<Call> call(long writer, String run, long batch) {
    Debt debt = byWriter.get(writer);
    if (debt == null || !debt.isOf(run, batch)) {
      return CompletableFuture.completedFuture(Call.FORGET);
    }
    debt.heardNanos = System.nanoTime();
    debt.asks = new CompletableFuture<Call>().completeOnTimeout(Call.WAIT, ASK_MS, TimeUnit.MILLISECONDS);
    if (debt.isCalled) {
      debt.call();
    }
    return debt.asks;
  }

  /** A process has made its commits of a batch durable, or says why it cannot. */
  synchronized void paid(long writer, String run, long batch, String failure) {
    Debt debt = byWriter.get(writer);
    if (debt != null && debt.isOf(run, batch)) {
      debt.isPaid = failure.isEmpty();
      debt.failure = failure.isEmpty() ? null : failure;
      notifyAll();
    }
  }

  private synchronized void lostSender(Object sender) {
    byWriter.values().stream().filter(debt -> sender.equals(debt.sender) && !debt.isPaid).forEach(debt -> {
      debt.failure = "its connection to the driver was lost";
      notifyAll();
    });
  }

  /**
   * Calls in what is owed to a batch, and waits until all of it is paid.
   *
   * @param stateDirectory of the checkpoint
   * @param run that ends the batch; null where it is not known, which makes the debts of all runs count
   * @param patienceMs how long a process may take to write
   * @throws StateStoreFilesException PSS_BATCH_NOT_DURABLE, where something cannot be paid
   */
  static void collect(String stateDirectory, String run, long batch, long patienceMs) throws IOException {
    BatchDebts debts = ALL.get(stateDirectory);
    if (debts != null) {
      debts.collect(run, batch, patienceMs);
    }
  }

  private synchronized void collect(String run, long batch, long patienceMs) throws IOException {
    collectedRun = run == null ? "" : run;
    collected = batch;
    forgetOthers(run, batch);
    long beganNanos = System.nanoTime();
    try {
      while (byWriter.values().stream().anyMatch(debt -> !debt.isPaid)) {
        byWriter.values().forEach(Debt::call);
        List<String> why = new ArrayList<>();
        byWriter.forEach((writer, debt) -> {
          String failure = failure(debt, beganNanos, patienceMs);
          if (failure != null) {
            why.add("writer " + Long.toHexString(writer) + ": " + failure);
          }
        });
        if (!why.isEmpty()) {
          throw notDurable(batch, why);
        }
        wait(1_000);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while batch " + batch + " of " + checkpoint + " became durable");
    } finally {
      byWriter.values().forEach(debt -> {
        if (debt.asks != null) {
          debt.asks.complete(Call.FORGET);
        }
      });
      byWriter.clear();
    }
  }

  /** Earlier batches are in the commit log, or will be computed again; an earlier run of the query has ended. */
  private void forgetOthers(String run, long batch) {
    for (Iterator<Debt> all = byWriter.values().iterator(); all.hasNext(); ) {
      Debt debt = all.next();
      if (debt.batch != batch || run != null && !debt.run.equals(run)) {
        if (debt.asks != null) {
          debt.asks.complete(Call.FORGET);
        }
        all.remove();
      }
    }
  }

  private static String failure(Debt debt, long beganNanos, long patienceMs) {
    if (debt.isPaid || debt.failure != null) {
      return debt.failure;
    }
    long now = System.nanoTime();
    boolean isSilent = (debt.asks == null || !debt.asks.isDone()) && now - debt.heardNanos > PATIENCE_NANOS;
    if (isSilent) {
      return "it did not ask for " + TimeUnit.NANOSECONDS.toSeconds(now - debt.heardNanos) + " s";
    }
    boolean isLate = now - beganNanos > TimeUnit.MILLISECONDS.toNanos(patienceMs);
    return isLate ? "it did not write within " + patienceMs + " ms" : null;
  }

  private StateStoreFilesException notDurable(long batch, List<String> why) {
    return new StateStoreFilesException(
        Id.PSS_BATCH_NOT_DURABLE, "Batch " + batch + " of " + checkpoint + " did not become durable: "
            + String.join("; ", why) + ". Its entry was not made in the commit log, so nothing is lost: restart the"
            + " query, which computes the batch again. With"
            + " spark.sql.streaming.stateStore.fileMerging.groupCommit.scope=task a lost executor fails no batch.");
  }
}
