package io.pyspark.statestore.write;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

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
 * <p>Debts do not end with a log or an epoch of the index service, so what is owed is never forgotten with them. They
 * end with the run of the query: which debts an entry waits for is decided by the number of its batch, and by when its
 * run began, but by no thread's name.
 */
public final class BatchDebts {
  /** By state directory. Changed under its monitor; a checkpoint is dropped when a run ends and nothing is owed. */
  private static final Map<String, BatchDebts> ALL = new ConcurrentHashMap<>();

  private static final int REMEMBERED = 1_000;

  /** Runs that have ended. What still works for them owes nothing. Used with the monitor of {@link #ALL}. */
  private static final Set<String> ENDED =
      Collections.newSetFromMap(
          new LinkedHashMap<>() {
            private static final long serialVersionUID = 1L;

            @Override
            protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
              return size() > REMEMBERED;
            }
          });

  /**
   * Of so many checkpoints, the last batch that was entered. A job that {@code foreachBatch} has begun and not waited
   * for comes after that, and what it commits must not count. Used with the monitor of {@link #ALL}.
   */
  private static final Map<String, Entered> ENTERED =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Entered> eldest) {
          return size() > REMEMBERED;
        }
      };

  /** Says whether a batch is in the commit log of a checkpoint. */
  public interface CommitLog {
    boolean has(long batch) throws IOException;
  }

  /**
   * A batch that is being entered, or was.
   *
   * @param log in which it is then; null as long as that is not known
   */
  private record Entered(long batch, CommitLog log) {
    /** Whether a batch has ended. Somebody may have taken entries away since, so that the query computes it again. */
    boolean ends(long other) throws IOException {
      return other <= batch && (log == null || log.has(batch) || log.has(other));
    }
  }

  /** A process that waits to be called asks so often; the driver counts it as lost after three times that. */
  static final long ASK_MS = 20_000;

  private static final long PATIENCE_NANOS = TimeUnit.MILLISECONDS.toNanos(3 * ASK_MS);

  private final String checkpoint;
  private final Map<Debtor, Debt> debts = new LinkedHashMap<>();

  /** By run, the batch of which the debts were collected last. */
  private final Map<String, Long> collected = new HashMap<>();

  private boolean isCollecting;

  /** Who owes: the writer of a process, for a batch of a run. */
  public record Debtor(long writer, String run, long batch) {}

  /** What a process hears that waits for the end of its batch. */
  public enum Call {
    /** The batch ends: write. */
    WRITE,
    /** It goes on: ask again. */
    WAIT,
    /** Nobody waits for these commits any more. */
    FORGET
  }

  private static final class Debt {
    private final Object sender;
    private final long madeNanos = System.nanoTime();

    /** Of the process's question, until it is answered; else null. */
    private CompletableFuture<Call> asks;

    private boolean isCalled;
    private boolean isPaid;

    /** The process has said that it cannot pay, and nothing that it says later takes that back. */
    private boolean isRefused;

    private String failure;
    private long heardNanos = madeNanos;

    private Debt(Object sender) {
      this.sender = sender;
    }

    private void forget() {
      if (asks != null) {
        asks.complete(Call.FORGET);
      }
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

  private static boolean isOwed(String stateDirectory) {
    BatchDebts debts = ALL.get(stateDirectory);
    return debts != null && debts.isOwed();
  }

  private synchronized boolean isOwed() {
    return !debts.isEmpty();
  }

  /**
   * A batch is about to be entered: nobody owes it anything from now on.
   *
   * @return whether something is owed already, which has to be collected before
   */
  public static boolean ends(String stateDirectory, long batch) {
    synchronized (ALL) {
      ENTERED.put(stateDirectory, new Entered(batch, null));
      return isOwed(stateDirectory);
    }
  }

  /**
   * What has become of that.
   *
   * @param log in which the batch is now; null where it was not entered
   */
  public static void ended(String stateDirectory, long batch, CommitLog log) {
    synchronized (ALL) {
      if (log == null) {
        ENTERED.remove(stateDirectory);
      } else {
        ENTERED.put(stateDirectory, new Entered(batch, log));
      }
    }
  }

  /** A connection is lost. What came over it and is not paid never will be. */
  public static void lost(Object sender) {
    ALL.values().forEach(debts -> debts.lostSender(sender));
  }

  /** Of how many checkpoints anything is remembered. */
  public static int remembered() {
    return ALL.size();
  }

  /** A run has ended, and with it what is owed to its batches. */
  public static void ended(String run) {
    synchronized (ALL) {
      ENDED.add(run);
      ALL.values().removeIf(debts -> debts.forget(run));
    }
  }

  /** Forgets a run; returns whether nothing of any other is left. */
  private synchronized boolean forget(String run) {
    forget(debtor -> debtor.run.equals(run));
    collected.remove(run);
    return debts.isEmpty() && collected.isEmpty() && !isCollecting;
  }

  private void forget(Predicate<Debtor> which) {
    debts
        .entrySet()
        .removeIf(
            owed -> {
              boolean goes = which.test(owed.getKey());
              if (goes) {
                owed.getValue().forget();
              }
              return goes;
            });
  }

  /**
   * A process owes commits to a batch.
   *
   * @param sender the connection over which it says so
   * @throws IOException where the batch or the run has ended, so that the task does not count
   */
  public static void owes(String stateDirectory, Debtor debtor, Object sender) throws IOException {
    boolean isTaken = false;
    while (!isTaken) {
      Entered entered;
      synchronized (ALL) {
        entered = ENTERED.get(stateDirectory);
      }
      // Asked without the monitor, because it may ask a file system.
      if (entered != null && entered.ends(debtor.batch)) {
        throw late(debtor, stateDirectory.substring(0, Math.max(0, stateDirectory.lastIndexOf('/'))));
      }
      synchronized (ALL) {
        if (ENDED.contains(debtor.run)) {
          throw new IOException("run " + debtor.run + " of the query has ended without this task");
        }
        isTaken = ENTERED.get(stateDirectory) == entered;
        if (isTaken) {
          ALL.computeIfAbsent(stateDirectory, BatchDebts::new).owes(debtor, sender);
        }
      }
    }
  }

  private synchronized void owes(Debtor debtor, Object sender) throws IOException {
    if (debtor.batch <= collected.getOrDefault(debtor.run, -1L)) {
      throw late(debtor, checkpoint);
    }
    debts.computeIfAbsent(debtor, d -> new Debt(sender));
  }

  private static IOException late(Debtor debtor, String checkpoint) {
    return new IOException(
        "batch "
            + debtor.batch
            + " of "
            + checkpoint
            + " has ended without this task. A function of"
            + " foreachBatch has to wait for the jobs that it begins");
  }

  /** What a process that owes should do, when it is known, or after {@link #ASK_MS}. */
  public static CompletableFuture<Call> call(String stateDirectory, Debtor debtor) {
    BatchDebts debts = ALL.get(stateDirectory);
    return debts == null ? CompletableFuture.completedFuture(Call.FORGET) : debts.call(debtor);
  }

  private synchronized CompletableFuture<Call> call(Debtor debtor) {
    Debt debt = debts.get(debtor);
    if (debt == null) {
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
  public static void paid(String stateDirectory, Debtor debtor, String failure) {
    BatchDebts debts = ALL.get(stateDirectory);
    if (debts != null) {
      debts.paid(debtor, failure);
    }
  }

  private synchronized void paid(Debtor debtor, String failure) {
    Debt debt = debts.get(debtor);
    if (debt != null && !debt.isRefused) {
      debt.isPaid = failure.isEmpty();
      debt.isRefused = !debt.isPaid;
      debt.failure = debt.isPaid ? null : failure;
      notifyAll();
    }
  }

  private synchronized void lostSender(Object sender) {
    debts.values().stream()
        .filter(debt -> sender.equals(debt.sender) && !debt.isPaid)
        .forEach(
            debt -> {
              debt.failure = "its connection to the driver was lost";
              notifyAll();
            });
  }

  /**
   * Calls in what is owed to a batch, and waits until all of it is paid.
   *
   * @param stateDirectory of the checkpoint
   * @param sinceNanos when the run began that ends the batch. What was owed before was owed to an earlier one
   * @param patienceMs how long a process may take to write
   * @throws StateStoreFilesException PSS_BATCH_NOT_DURABLE, where something cannot be paid
   */
  public static void collect(String stateDirectory, long sinceNanos, long batch, long patienceMs) throws IOException {
    BatchDebts debts = ALL.get(stateDirectory);
    if (debts != null) {
      debts.collect(sinceNanos, batch, patienceMs);
    }
  }

  private synchronized void collect(long sinceNanos, long batch, long patienceMs) throws IOException {
    // Earlier batches are in the commit log. What an earlier run has of this one or later is computed again.
    forget(debtor -> debtor.batch != batch || debts.get(debtor).madeNanos - sinceNanos < 0);
    debts.keySet().forEach(debtor -> collected.merge(debtor.run, batch, Math::max));
    long beganNanos = System.nanoTime();
    isCollecting = true;
    try {
      while (debts.values().stream().anyMatch(debt -> !debt.isPaid)) {
        debts.values().forEach(Debt::call);
        List<String> why = new ArrayList<>();
        debts.forEach(
            (debtor, debt) -> {
              String failure = failure(debt, beganNanos, patienceMs);
              if (failure != null) {
                why.add("writer " + Long.toHexString(debtor.writer) + ": " + failure);
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
      isCollecting = false;
      forget(debtor -> true);
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
        Id.PSS_BATCH_NOT_DURABLE,
        "Batch "
            + batch
            + " of "
            + checkpoint
            + " did not become durable: "
            + String.join("; ", why)
            + ". Its entry was not made in the commit log, so nothing is lost: restart the"
            + " query, which computes the batch again. With"
            + " spark.sql.streaming.stateStore.fileMerging.groupCommit.scope=task a lost executor fails no batch.");
  }
}
