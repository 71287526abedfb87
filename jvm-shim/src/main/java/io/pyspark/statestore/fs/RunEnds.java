package io.pyspark.statestore.fs;

import io.pyspark.statestore.files.Threads;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.ShutdownHookManager;
import org.apache.spark.ExecutorLostFailure;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The runs of this driver's queries, which say in their checkpoints that they go on and that they have ended: see
 * {@link RunFiles}.
 *
 * <p>A run has ended when its thread has, and when no task of it can write any more. Where no batch is open, all tasks
 * have ended. Else the driver has to have heard of the end of each; an executor that it has lost may live, and then
 * nothing is said. What Spark's maintenance still writes is of versions that are there.
 */
public final class RunEnds extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger(RunEnds.class);

  /** So many runs are remembered that nobody has heard the end of. */
  private static final int KEPT = 1000;

  /** A task that was launched when its job was cancelled is heard of within this time. */
  private static final long SETTLED_MS = 500;

  private static final long LOOK_MS = 50;

  /** How long a query may take to stop when its process ends. */
  private static final long STOP_MS = 1_000;

  /** How long the end of an application waits until the ends of its queries are said. */
  private static final long LAST_WORDS_MS = 5_000;

  private static final ExecutorService THREADS = Executors.newCachedThreadPool(Threads.daemons("merged-run-ends"));

  /** By checkpoint, the newest run that has begun here, or is about to. */
  private static final Map<Path, RunFiles> NEWEST = new KeptMap<>();

  private static final Map<String, Run> RUNS = new KeptMap<>();

  private static Reference<SparkContext> heard = new WeakReference<>(null);
  private static volatile boolean isProcessEnding;

  static {
    // After Spark's own, which stops the application, and before that which seals the merged files.
    ShutdownHookManager.get()
        .addShutdownHook(RunEnds::processEnds, FileSystem.SHUTDOWN_HOOK_PRIORITY + 25, 10, TimeUnit.SECONDS);
  }

  private final Map<Integer, Stage> stages = new HashMap<>();

  private RunEnds() {}

  private static final class KeptMap<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1;

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
      return size() > KEPT;
    }
  }

  /** A run that Spark has told of. Its fields are guarded by its monitor. */
  private static final class Run {
    final String query;
    final String id;
    final String application;
    final RunFiles files;
    final Thread thread;
    final ActiveRuns active;
    int tasksCount;
    long lostNanos;
    long quietNanos = System.nanoTime();
    boolean hasTerminated;
    CompletableFuture<Void> said;

    Run(String query, String id, RunFiles files, ActiveRuns active) {
      this.query = query;
      this.id = id;
      // What its processes write into their files. Spark has no id yet when plugins begin to listen.
      this.application = ProcessIdentity.headerFields(id).get("app_id");
      this.files = files;
      this.active = active;
      this.thread = active.thread();
    }

    /** Whether the run may begin, enter or commit a batch. */
    synchronized boolean isAlive() {
      return thread == null ? !hasTerminated : thread.isAlive();
    }

    /** Whether all its tasks are known to have ended, and for how long. */
    synchronized boolean isQuiet(long settledMs) {
      return hasTerminated && tasksCount == 0 && System.nanoTime() - quietNanos >= settledMs * 1_000_000;
    }

    synchronized boolean hasLost(long withinMs) {
      return lostNanos != 0 && System.nanoTime() - lostNanos < withinMs * 1_000_000;
    }

    synchronized void terminated() {
      hasTerminated = true;
      quietNanos = System.nanoTime();
    }

    synchronized void taskStarted() {
      tasksCount++;
    }

    synchronized void taskEnded(boolean isLost) {
      tasksCount--;
      quietNanos = System.nanoTime();
      lostNanos = isLost ? quietNanos : lostNanos;
    }
  }

  /** The tasks of a stage that have begun and not ended. Those that were cancelled may outlive the stage. */
  private static final class Stage {
    final Run run;
    final Set<Long> tasks = new HashSet<>();
    boolean isCompleted;

    Stage(Run run) {
      this.run = run;
    }
  }

  /** Begins to listen to an application, once. */
  public static void listen(SparkContext context) {
    synchronized (NEWEST) {
      if (heard.get() == context) {
        return;
      }
      heard = new WeakReference<>(context);
    }
    try {
      context.addSparkListener(new RunEnds());
    } catch (RuntimeException | LinkageError e) {
      LOG.warn(
          "Queries of this application do not say when they end, so commands in other processes that need a stopped one"
              + " wait for closedAfter. What to do: report it with this stack trace",
          e);
    }
  }

  /**
   * A run of a query is about to begin: the end of an earlier one does not count any more. Call it before anything is
   * written for the run.
   *
   * @param checkpoint qualified real path
   */
  static void begins(Path checkpoint, Configuration conf) throws IOException {
    if (!ProcessIdentity.isDriver(SparkEnv.get())) {
      return;
    }
    SparkContext context = ProcessIdentity.context();
    if (context != null) {
      listen(context);
    }
    RunFiles files = new RunFiles(checkpoint, conf, System.currentTimeMillis());
    synchronized (NEWEST) {
      NEWEST.put(checkpoint, files);
    }
    files.begin(conf);
  }

  /** The names of the newest files by which runs of this process have said that they go on. */
  public static List<String> filesOfRuns() {
    return RunFiles.made();
  }

  /**
   * Notes what a run enters into its logs.
   *
   * @param path of a new file, with its real name
   * @param made the file as it would be made
   * @return {@code made}, where the file is no entry of a run that has begun here
   */
  static AtomicFile noting(Path path, AtomicFile made, Configuration conf) throws IOException {
    Path log = path.getParent();
    boolean isEntry = log != null && log.getParent() != null && RunFiles.isEntry(log.getName(), path.getName());
    if (!isEntry || !ProcessIdentity.isDriver(SparkEnv.get())) {
      return made;
    }
    RunFiles files;
    synchronized (NEWEST) {
      files = NEWEST.get(path.getFileSystem(conf).makeQualified(log.getParent()));
    }
    return files == null ? made : new NotedEntry(made, files, log.getName(), Long.parseLong(path.getName()), conf);
  }

  private record NotedEntry(AtomicFile entry, RunFiles files, String log, long batch, Configuration conf)
      implements AtomicFile {
    @Override
    public OutputStream out() {
      return entry.out();
    }

    @Override
    public void close() throws IOException {
      entry.close();
      try {
        files.entered(log, batch, conf);
      } catch (IOException | RuntimeException e) {
        LOG.info("Could not say in a checkpoint that its query runs", e);
      }
    }

    @Override
    public void cancel() {
      entry.cancel();
    }
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof StreamingQueryListener.QueryStartedEvent started) {
      started(started);
    } else if (event instanceof StreamingQueryListener.QueryTerminatedEvent ended) {
      Run run;
      synchronized (NEWEST) {
        run = RUNS.get(ended.runId().toString());
      }
      if (run != null) {
        run.terminated();
        sayLater(run);
      }
    }
  }

  private void started(StreamingQueryListener.QueryStartedEvent event) {
    ActiveRuns active = ActiveRuns.find(event.id(), event.runId());
    String location = active == null ? null : active.checkpoint();
    if (location == null) {
      return;
    }
    RunFiles files = newestAt(location);
    if (files == null) {
      files = beginsLate(location);
    }
    // One that came later is of the run that is about to take this one's place.
    if (files != null && files.sinceMs() <= millis(event.timestamp())) {
      Run run = new Run(event.id().toString(), event.runId().toString(), files, active);
      synchronized (NEWEST) {
        RUNS.put(run.id, run);
      }
    }
  }

  private static RunFiles newestAt(String location) {
    String real = Schemes.toReal(new Path(location)).toString();
    synchronized (NEWEST) {
      for (Map.Entry<Path, RunFiles> known : NEWEST.entrySet()) {
        if (real.equals(known.getKey().toString()) || location.equals(known.getKey().toUri().toString())) {
          return known.getValue();
        }
      }
    }
    return null;
  }

  /**
   * The query's session has another file manager, so its run has begun without a word. Null where it cannot be said.
   */
  private static RunFiles beginsLate(String location) {
    try {
      SparkContext context = ProcessIdentity.context();
      if (context == null) {
        return null;
      }
      Configuration conf = context.hadoopConfiguration();
      Path real = Schemes.toReal(new Path(location));
      Path checkpoint = real.getFileSystem(conf).makeQualified(real);
      RunFiles files = new RunFiles(checkpoint, conf, 0);
      synchronized (NEWEST) {
        NEWEST.put(checkpoint, files);
      }
      THREADS.execute(() -> begin(files, conf));
      return files;
    } catch (IOException | RuntimeException e) {
      LOG.info("Could not say in {} that its query runs", location, e);
      return null;
    }
  }

  private static void begin(RunFiles files, Configuration conf) {
    try {
      files.begin(conf);
    } catch (IOException | RuntimeException e) {
      LOG.warn(
          "Could not say in a checkpoint that its query runs. What to do: allow the driver to write there, and use"
              + " configure() in the query's session",
          e);
    }
  }

  private static long millis(String timestamp) {
    try {
      return Instant.parse(timestamp).toEpochMilli();
    } catch (DateTimeParseException e) {
      return 0;
    }
  }

  // ---- which tasks may still write

  @Override
  public void onStageSubmitted(SparkListenerStageSubmitted event) {
    Run run;
    synchronized (NEWEST) {
      run = RUNS.get(SparkQuery.runOf(event.properties()));
    }
    if (run != null) {
      stages.computeIfAbsent(event.stageInfo().stageId(), id -> new Stage(run)).isCompleted = false;
    }
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted event) {
    Stage stage = stages.get(event.stageInfo().stageId());
    if (stage != null) {
      stage.isCompleted = true;
      forgetIfDone(event.stageInfo().stageId(), stage);
    }
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    Stage stage = stages.get(event.stageId());
    if (stage != null && stage.tasks.add(event.taskInfo().taskId())) {
      stage.run.taskStarted();
    }
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    Stage stage = stages.get(event.stageId());
    if (stage != null && stage.tasks.remove(event.taskInfo().taskId())) {
      stage.run.taskEnded(event.reason() instanceof ExecutorLostFailure);
      forgetIfDone(event.stageId(), stage);
    }
  }

  private void forgetIfDone(int id, Stage stage) {
    if (stage.isCompleted && stage.tasks.isEmpty()) {
      stages.remove(id);
    }
  }

  // ---- the end

  /** Waits until nothing of a run writes any more, and says so. */
  private static void say(Run run) {
    try {
      if (isOver(run)) {
        end(run);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (IOException | RuntimeException | LinkageError e) {
      LOG.warn(
          "Could not say in the checkpoint of query {} that its run {} has ended, so commands in other processes that"
              + " need a stopped one wait for closedAfter. What to do: wait, or say --force where you know that nobody"
              + " runs the query",
          run.query,
          run.id,
          e);
    } finally {
      synchronized (NEWEST) {
        RUNS.remove(run.id, run);
      }
    }
  }

  private static boolean isOver(Run run) throws IOException, InterruptedException {
    long patienceMs = run.files.patienceMs();
    long until = System.nanoTime() + patienceMs * 1_000_000;
    while (run.isAlive()) {
      if (System.nanoTime() > until) {
        return false;
      }
      Thread.sleep(LOOK_MS);
    }
    if (!run.files.hasOpenBatch()) {
      return true;
    }
    while (!run.isQuiet(isProcessEnding ? 0 : SETTLED_MS)) {
      if (isProcessEnding || System.nanoTime() > until) {
        return false;
      }
      Thread.sleep(LOOK_MS);
    }
    return !run.hasLost(patienceMs);
  }

  private static void end(Run run) throws IOException {
    synchronized (NEWEST) {
      // Another run that has begun has its own.
      if (!NEWEST.values().remove(run.files)) {
        return;
      }
    }
    if (run.files.end(run.query, run.id, run.application)) {
      LOG.info("Query {} has said in its checkpoint that its run {} has ended", run.query, run.id);
    }
  }

  /** Spark stops no query. Its thread ends when it needs the application next, or with the process. */
  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    List<CompletableFuture<Void>> ends = new ArrayList<>();
    for (Run run : runs()) {
      boolean hasEnded = !run.isAlive();
      CompletableFuture<Void> said = sayLater(run);
      if (hasEnded) {
        ends.add(said);
      }
    }
    await(ends);
  }

  /** The process ends in good order, and its application has ended: no query of it goes on. */
  private static void processEnds() {
    isProcessEnding = true;
    List<Run> left = runs();
    left.forEach(RunEnds::stop);
    await(left.stream().map(RunEnds::sayLater).toList());
  }

  private static List<Run> runs() {
    synchronized (NEWEST) {
      return new ArrayList<>(RUNS.values());
    }
  }

  private static CompletableFuture<Void> sayLater(Run run) {
    synchronized (run) {
      if (run.said == null) {
        run.said = CompletableFuture.runAsync(() -> say(run), THREADS);
      }
      return run.said;
    }
  }

  private static void await(List<CompletableFuture<Void>> ends) {
    try {
      CompletableFuture.allOf(ends.toArray(CompletableFuture<?>[]::new)).get(LAST_WORDS_MS, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException | TimeoutException e) {
      LOG.info("Not every query of this process has said in its checkpoint that it has ended", e);
    }
  }

  private static void stop(Run run) {
    Thread thread = run.thread;
    if (thread == null || !thread.isAlive()) {
      return;
    }
    Thread stops = Threads.daemons("merged-run-ends-stop").newThread(run.active::stop);
    stops.start();
    try {
      stops.join(STOP_MS);
      if (thread.isAlive()) {
        thread.interrupt();
        thread.join(STOP_MS);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
