package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.files.Parallel;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexTransport;
import io.pyspark.statestore.service.IndexService;
import io.pyspark.statestore.service.ServiceMessages;
import io.pyspark.statestore.tables.EarlyFile;
import io.pyspark.statestore.tables.Hydrator;
import io.pyspark.statestore.tables.LocalCache;
import io.pyspark.statestore.tables.OpenStores;
import io.pyspark.statestore.write.BatchDebts;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.UploadWatch;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.util.ShutdownHookManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The logs of this process, one per checkpoint: opened when first needed, sealed when the process stops cleanly. */
public final class MergedLogs {
  private static final Logger LOG = LoggerFactory.getLogger(MergedLogs.class);
  private static final long TICK_MS = 100;

  /** Changed under its monitor, under which no thread waits for a file system. */
  private static final Map<String, MergedLog> LOGS = new ConcurrentHashMap<>();

  /** The logs that are being opened. Others wait here for their own checkpoint only. */
  private static final Map<String, FutureTask<MergedLog>> OPENING = new HashMap<>();

  private static final ExecutorService THREADS = Executors.newCachedThreadPool(Threads.daemons("merged-log-io"));

  /** Only starts housekeeping. What may wait for a file system or for Spark runs in a thread of its own. */
  private static final ScheduledExecutorService HOUSEKEEPER =
      Executors.newSingleThreadScheduledExecutor(Threads.daemons("merged-log-housekeeper"));

  /** The housekeeping that is running: a checkpoint's, or that of the upload watches. */
  private static final Set<Object> RUNNING = ConcurrentHashMap.newKeySet();

  static {
    HOUSEKEEPER.scheduleWithFixedDelay(MergedLogs::tick, TICK_MS, TICK_MS, TimeUnit.MILLISECONDS);
    // Before Hadoop closes its file systems, which would leave the files unsealed.
    ShutdownHookManager.get()
        .addShutdownHook(MergedLogs::sealAll, FileSystem.SHUTDOWN_HOOK_PRIORITY + 20, 10, TimeUnit.SECONDS);
  }

  private MergedLogs() {}

  /**
   * Returns the log of a checkpoint, and opens it first where it is not open.
   *
   * @param stateDirectory qualified {@code <checkpoint>/state} on {@code fs}
   * @param options of the log from now on
   * @param process that the log works in
   * @param service the way to the index service; null where this process works by itself, or is the service's
   * @param queryRunId of the query that asks; may be empty
   * @param path that is asked about
   * @param keys of the question that is asked; if it opens the log, the first refresh serves them
   */
  public static MergedLog of(
      FileSystem fs,
      org.apache.hadoop.fs.Path stateDirectory,
      Options options,
      ProcessFacts process,
      IndexTransport service,
      String queryRunId,
      String path,
      FreshnessKey... keys)
      throws IOException {
    String key = stateDirectory.toString();
    Callable<MergedLog> open =
        () -> new MergedLog(fs, stateDirectory, options, process, THREADS, service, queryRunId, path, keys);
    while (true) {
      MergedLog log = LOGS.get(key);
      while (log == null) {
        log = openOnce(key, new FutureTask<>(open));
      }
      log.options(options);
      log.used();
      if (queryRunId.isEmpty() || log.beginRun(service, new FreshnessKey.QueryRun(queryRunId))) {
        return log;
      }
      replace(log);
    }
  }

  /** Forgets a log that cannot go on, so that it is opened anew. What it has open it leaves. */
  static void replace(MergedLog log) {
    boolean forgotten;
    synchronized (LOGS) {
      forgotten = LOGS.values().remove(log);
    }
    if (forgotten) {
      LOG.info("The log of {} is opened anew", log.checkpoint());
      THREADS.execute(log::abandon);
    }
  }

  /** Opens logs for the index service. */
  public interface Opener {
    /** Returns the log of a checkpoint in this process, refreshed for a run of its query. */
    MergedLog open(String stateDirectory, String queryRunId) throws IOException;
  }

  /**
   * Answers a question of an executor.
   *
   * @param sender the connection over which it came
   * @return the answer, which comes at once for all but {@link ServiceMessages.AskCall}
   */
  public static CompletableFuture<byte[]> answer(byte[] question, Object sender, Opener opener) {
    ServiceMessages.Answer answer;
    try {
      ServiceMessages.Question asked = ServiceMessages.question(question);
      if (asked instanceof ServiceMessages.BatchQuestion batch) {
        return answer(batch, sender).thenApply(call -> ServiceMessages.encode(new ServiceMessages.Called(call)));
      }
      answer =
          asked instanceof ServiceMessages.Open open
              ? open(open, opener)
              : IndexService.answer((ServiceMessages.OpenQuestion) asked, sender);
    } catch (StateStoreFilesException e) {
      answer = new ServiceMessages.Refused(false, e.id(), e.getMessage());
    } catch (IOException | RuntimeException | Error e) {
      // An executor waits for an answer.
      LOG.warn(
          "The index service could not answer. What to do: if it goes on, report it with this stack trace, and"
              + " restart the query with indexService.enabled=false",
          e);
      answer = new ServiceMessages.Refused(false, null, String.valueOf(e));
    }
    return CompletableFuture.completedFuture(ServiceMessages.encode(answer));
  }

  private static CompletableFuture<BatchDebts.Call> answer(ServiceMessages.BatchQuestion question, Object sender)
      throws IOException {
    String state = question.stateDirectory();
    BatchDebts.Debtor debtor = new BatchDebts.Debtor(question.writer(), question.run(), question.batch());
    if (question instanceof ServiceMessages.AskCall) {
      return BatchDebts.call(state, debtor);
    }
    if (question instanceof ServiceMessages.Paid paid) {
      BatchDebts.paid(state, debtor, paid.failure());
    } else {
      BatchDebts.owes(state, debtor, sender);
    }
    return CompletableFuture.completedFuture(BatchDebts.Call.WAIT);
  }

  /**
   * A batch is about to be entered into the commit log. What comes for it from now on is refused.
   *
   * @return whether processes owe something already; then {@link #awaitBatch} has to be called before
   */
  public static boolean batchEnds(String stateDirectory, long batch) {
    return BatchDebts.ends(stateDirectory, batch);
  }

  /**
   * What has become of that.
   *
   * @param log in which the batch is now; null where it was not entered
   */
  public static void batchEnded(String stateDirectory, long batch, BatchDebts.CommitLog log) {
    BatchDebts.ended(stateDirectory, batch, log);
  }

  /**
   * Waits, before a batch is entered into the commit log, until all that its tasks have committed is durable.
   *
   * @param stateDirectory of the checkpoint
   * @param sinceNanos when the run of the query began that makes the entry, as {@link System#nanoTime} says it
   * @param patienceMs how long a process may take to write
   */
  public static void awaitBatch(String stateDirectory, long sinceNanos, long batch, long patienceMs)
      throws IOException {
    BatchDebts.collect(stateDirectory, sinceNanos, batch, patienceMs);
  }

  /** A run of a query has ended, in whatever way: nobody waits for what is owed to its batches. */
  public static void runEnded(String run) {
    BatchDebts.ended(run);
  }

  private static ServiceMessages.Answer open(ServiceMessages.Open question, Opener opener) throws IOException {
    if (!question.queryRunId().isEmpty()) {
      return opener.open(question.stateDirectory(), question.queryRunId()).serve().opened();
    }
    // A batch job reads the checkpoint. Perhaps no query of this application runs on it.
    MergedLog known = LOGS.get(question.stateDirectory());
    IndexService service = known == null ? null : known.service();
    return service == null
        ? new ServiceMessages.Refused(true, null, "no query of this application runs on it")
        : service.opened();
  }

  /** What the answer to a question may have to wait for, equal for what waits for the same; null for nothing. */
  public static String waitsFor(byte[] question) {
    try {
      return ServiceMessages.waitsFor(question);
    } catch (IOException e) {
      return null;
    }
  }

  /** A connection over which executors asked is lost. */
  public static void lost(Object sender) {
    IndexService.lost(sender);
    BatchDebts.lost(sender);
  }

  /** Opens a log, or waits for another thread that does; returns null where the caller has to try again. */
  private static MergedLog openOnce(String key, FutureTask<MergedLog> own) throws IOException {
    FutureTask<MergedLog> opening;
    synchronized (LOGS) {
      if (LOGS.containsKey(key)) {
        return LOGS.get(key);
      }
      opening = OPENING.computeIfAbsent(key, k -> own);
    }
    if (opening == own) {
      own.run();
    }
    try {
      MergedLog log = opening.get();
      return opening == own ? enterUnlessForgotten(key, own, log) : LOGS.get(key);
    } catch (ExecutionException e) {
      forget(key, opening);
      if (opening != own && Threads.saysInterrupted(e.getCause())) {
        // The task that opened it was killed. This one was not, and tries again.
        return null;
      }
      throw failure(key, e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while another thread opened " + key);
    }
  }

  private static IOException failure(String key, ExecutionException e) {
    if (e.getCause() instanceof Error error) {
      throw error;
    }
    if (e.getCause() instanceof RuntimeException runtime) {
      throw runtime;
    }
    return e.getCause() instanceof IOException io ? io : new IOException("Could not open " + key, e.getCause());
  }

  /** Makes the log known; returns null where the checkpoint was deleted meanwhile, so that it has to be read again. */
  private static MergedLog enterUnlessForgotten(String key, FutureTask<MergedLog> opening, MergedLog log) {
    synchronized (LOGS) {
      if (OPENING.remove(key, opening)) {
        LOGS.put(key, log);
        return log;
      }
    }
    log.abandon();
    return null;
  }

  private static void forget(String key, FutureTask<MergedLog> opening) {
    synchronized (LOGS) {
      OPENING.remove(key, opening);
    }
  }

  /** Returns the log of a state directory where it is open already, else null. */
  public static MergedLog open(org.apache.hadoop.fs.Path stateDirectory) {
    return LOGS.get(stateDirectory.toString());
  }

  /** Forgets the logs of checkpoints below a directory that was deleted. */
  public static void forgetBelow(org.apache.hadoop.fs.Path directory) {
    String prefix = directory.toString();
    Predicate<String> isBelow =
        key -> key.equals(prefix) || key.startsWith(prefix.endsWith("/") ? prefix : prefix + "/");
    List<MergedLog> forgotten = new ArrayList<>();
    synchronized (LOGS) {
      OPENING.keySet().removeIf(isBelow);
      LOGS.entrySet().removeIf(entry -> isBelow.test(entry.getKey()) && forgotten.add(entry.getValue()));
    }
    forgotten.forEach(MergedLog::abandon);
  }

  /** A store's file manager was closed. After its last one, no zip will name what is staged for the store. */
  public static void managerClosed(Object manager) {
    OpenStores.Store store = OpenStores.closed(manager);
    MergedLog log = store == null ? null : open(store.stateDirectory());
    if (log != null) {
      log.snapshots().storeClosed(store.path());
    }
  }

  /** An SST was uploaded that no snapshot is going to name. */
  public static void deleteEarly(EarlyFile file) {
    MergedLog log = open(file.owner().stateDirectory());
    if (log != null) {
      log.snapshots().deleteEarly(file);
    }
  }

  /** Returns the open logs by the location of their state directory. */
  public static Map<String, MergedLog> all() {
    return Map.copyOf(LOGS);
  }

  /** Closes and forgets the logs of queries that ended long ago. Whoever asks for one again opens it anew. */
  private static void forgetIdle() {
    // Each in a thread that has been started by the time it is forgotten, so that it is closed, too.
    LOGS.values().stream().filter(MergedLog::isForgettable).forEach(log -> THREADS.execute(() -> forgetIfIdle(log)));
  }

  private static void forgetIfIdle(MergedLog log) {
    synchronized (LOGS) {
      if (!log.isForgettable() || !LOGS.values().remove(log)) {
        return;
      }
    }
    LOG.info("Forgot the log of {}, which nobody has used for long", log.checkpoint());
    log.abandon();
  }

  /** Never fails: a timer does not call again what has failed, and nobody else seals, cleans or forgets. */
  private static void tick() {
    try {
      forgetIdle();
      LOGS.values().forEach(log -> keepHouse(log, log.checkpoint(), log::tick));
      Hydrator.goOn();
      if (LocalCache.ofProcess().isOverLimit()) {
        THREADS.execute(LocalCache.ofProcess()::keepToLimit);
      }
      if (UploadWatch.any()) {
        keepHouse(UploadWatch.class, "uploads", UploadWatch::askAll);
      }
    } catch (RuntimeException | Error e) {
      said(e);
    }
  }

  private static void said(Throwable e) {
    try {
      LOG.warn("Housekeeping failed; trying again. What to do: if it goes on, report it with this stack trace", e);
    } catch (RuntimeException | Error again) {
      // Memory has run out, and is asked for once more in a moment.
    }
  }

  /** Runs housekeeping in a thread of its own, unless its last run has not ended. */
  private static void keepHouse(Object whose, String name, Runnable work) {
    if (!RUNNING.add(whose)) {
      return;
    }
    try {
      THREADS.execute(
          () -> {
            try {
              work.run();
            } catch (RuntimeException | Error e) {
              LOG.warn(
                  "Housekeeping of {} failed; trying again. What to do: if it goes on, mend the cause; dead files stay"
                      + " until then",
                  name,
                  e);
            } finally {
              RUNNING.remove(whose);
            }
          });
    } catch (RuntimeException | Error e) {
      RUNNING.remove(whose);
      LOG.warn(
          "Could not start a thread for the housekeeping of {}; trying again. What to do: allow this process more"
              + " threads (ulimit -u) or memory",
          name,
          e);
    }
  }

  /** Seals the files of all logs. */
  public static void sealAll() {
    List<Callable<Object>> seals = new ArrayList<>();
    LOGS.values().forEach(log -> seals.add(Executors.callable(() -> seal(log))));
    try {
      // Side by side, because a process that stops does not wait for long.
      for (FutureTask<Object> seal : Parallel.start(THREADS, seals.size(), seals)) {
        seal.get();
      }
    } catch (ExecutionException e) {
      LOG.info("Some files could not be sealed; all their groups are durable", e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static void seal(MergedLog log) {
    try {
      log.seal();
    } catch (RuntimeException | Error e) {
      LOG.info("Could not seal the files of {}; all its groups are durable", log.checkpoint(), e);
    }
  }
}
