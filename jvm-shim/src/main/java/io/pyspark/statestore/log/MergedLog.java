package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateFileNotFoundException;
import io.pyspark.statestore.clean.Cleaner;
import io.pyspark.statestore.clean.Maintenance;
import io.pyspark.statestore.clean.ServedRelocations;
import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.index.HybridClock;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.FilesSource;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexSource;
import io.pyspark.statestore.learn.IndexTransport;
import io.pyspark.statestore.learn.Learning;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.service.IndexService;
import io.pyspark.statestore.service.ServiceSource;
import io.pyspark.statestore.tables.Loads;
import io.pyspark.statestore.tables.OpenStores;
import io.pyspark.statestore.tables.Snapshots;
import io.pyspark.statestore.write.Commits;
import io.pyspark.statestore.write.LogOutputStream;
import io.pyspark.statestore.write.ProcessFacts;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The merged files of one checkpoint, as one process reads and writes them. Each verb is done in a room of its own:
 *
 * <ul>
 *   <li>{@link #create}, {@link #delete}: {@link Commits} makes them durable, and the {@link Index} takes them in
 *   <li>{@link #stage}: {@link Snapshots} keeps the SSTs of a RocksDB snapshot until its zip comes
 *   <li>{@link #find}, {@link #index}: the {@link Index}
 *   <li>{@link #refresh()} and the like: the {@link IndexSource}, which reads the files or asks the driver
 *   <li>{@link #open}, {@link #copyTo}: {@link Loads} reads the bytes
 *   <li>{@link #maintain}, {@link #clean}: {@link Maintenance} removes garbage
 *   <li>{@link #serve}: the {@link IndexService} answers executors
 * </ul>
 */
public final class MergedLog {
  private static final Logger LOG = LoggerFactory.getLogger(MergedLog.class);

  /** A process without commits goes on cleaning for so long after others' files count as closed. */
  static volatile long keepCleaningMs = 300_000;

  private final Storage storage;
  private final ProcessFacts process;
  private final Index index = new Index();
  private final LogMetrics metrics = new LogMetrics();
  private final Clocks.Watch watch = new Clocks.Watch();
  private final Rules rules = new Rules(this::options, watch::now);
  private final HybridClock clock = new HybridClock(Clocks::wallMs);
  private final WriterIdentity writer;
  private final Learning learning;
  private final FilesSource files;

  /** Null where this log reads the files, because it works by itself or is the one behind the index service. */
  private final ServiceSource service;

  /** One of the two. */
  private final IndexSource source;

  private final Loads loads;
  private final Commits commits;
  private final Snapshots snapshots;
  private final Maintenance maintenance;

  /** Null as {@code service}. */
  private final ServedRelocations relocations;

  private final ExecutorService threads;
  private final Set<String> knownDirectories = ConcurrentHashMap.newKeySet();
  private volatile Options options;

  /** Answers executors; null where this process does not. */
  private volatile IndexService serves;

  private volatile long usedMs = Clocks.monotonicMs();

  /** The newest run that has begun. */
  private volatile FreshnessKey.QueryRun run;

  /**
   * Opens the log of a checkpoint and reads what is in it.
   *
   * @param stateDirectory {@code <checkpoint>/state} on {@code fs}
   * @param threads write and read
   * @param transport the way to the index service; null where the log works by itself
   * @param queryRunId of the query that the question which opens the log comes from; may be empty
   * @param path that the question is about
   * @param keys of the question, see {@link #refreshFor}; may be none
   */
  MergedLog(
      FileSystem fs,
      org.apache.hadoop.fs.Path stateDirectory,
      Options options,
      ProcessFacts process,
      ExecutorService threads,
      IndexTransport transport,
      String queryRunId,
      String path,
      FreshnessKey... keys)
      throws IOException {
    this.options = options;
    this.process = process;
    this.threads = threads;
    storage = new Storage(fs, stateDirectory);
    String state = stateDirectory.toString();
    writer = new WriterIdentity(process.headerFields(), this::bornMerged);
    service =
        ServiceSource.of(
            transport,
            state,
            queryRunId,
            writer.id(),
            index,
            rules,
            clock,
            metrics,
            this::forget,
            () -> MergedLogs.replace(this),
            threads);
    learning = Learning.of(storage, index, rules, clock, metrics, writer, threads, this::forget);
    files = new FilesSource(learning.refresher(), index, (way, next) -> ServiceSource.serves(way, state, next));
    source = service == null ? files : service;
    loads = new Loads(storage, rules, index, this::findAfterRefresh, metrics, threads);
    commits =
        new Commits(
            storage,
            index,
            rules,
            clock,
            metrics,
            writer,
            process,
            learning.refresher()::number,
            service,
            service,
            new AroundCommits(),
            threads);
    maintenance = new Maintenance(learning, source, loads.reader(), commits, metrics, this::forget);
    snapshots =
        new Snapshots(
            storage,
            index,
            rules,
            metrics,
            writer.id(),
            learning.pins(),
            source,
            commits,
            loads,
            this::bornMerged,
            maintenance.garbage()::written,
            threads);
    relocations =
        service == null ? null : maintenance.relocations(service::moves, state, process.maintenanceMs(), threads);
    run = queryRunId.isEmpty() ? null : new FreshnessKey.QueryRun(queryRunId);
    if (service != null) {
      learning.reader().bornMerged(service.bornMerged());
      if (keys.length > 0) {
        source.refreshFor(path, keys);
      }
    } else {
      readFiles(keys);
    }
  }

  private void readFiles(FreshnessKey... keys) throws IOException {
    List<FreshnessKey> all = new ArrayList<>(List.of(keys));
    if (run != null) {
      all.add(run);
    }
    if (all.isEmpty()) {
      learning.refresher().refresh();
    } else {
      learning.refresher().refreshFor(all.toArray(FreshnessKey[]::new));
    }
    if (!bornMerged() && index.files().isEmpty()) {
      learning.reader().bornMerged(!storage.hasPlainState());
    }
  }

  /** What the other rooms say of a commit. */
  private final class AroundCommits implements Commits.Around {
    @Override
    public boolean hasDriver() {
      return service != null || serves != null;
    }

    @Override
    public boolean holdsDeletionsBack() {
      return service == null && maintenance.cleaner().holdsDeletionsBack();
    }

    @Override
    public long liveBytes() {
      return source.liveBytes();
    }

    @Override
    public void written(long bytes) {
      maintenance.garbage().written(bytes);
    }

    @Override
    public Commits.Companions companions() {
      return snapshots;
    }
  }

  // ---- writing

  /** Starts a logical file. It becomes visible when the stream is closed, and replaces what was there. */
  public LogOutputStream create(String path) throws IOException {
    return create(path, "");
  }

  /** As {@link #create(String)}, for a run of the query: see {@link Commits#create}. */
  public LogOutputStream create(String path, String queryRunId) throws IOException {
    LogicalPaths.check(path, checkpoint());
    learning.pins().checkUnclaimed();
    return commits.create(path, queryRunId);
  }

  /**
   * Stages a local immutable file of a RocksDB snapshot. It becomes visible with the zip that names it.
   *
   * @return false where {@code path} is not such a file, and has to be created as any other
   */
  public boolean stage(String path, Path localFile) throws IOException {
    LogicalPaths.check(path, checkpoint());
    return snapshots.stage(path, localFile);
  }

  /** What this process writes here. */
  Commits commits() {
    return commits;
  }

  /** The snapshots of this process's stores on their way here. */
  Snapshots snapshots() {
    return snapshots;
  }

  /** The files of a directory that no snapshot names yet, see {@link Snapshots#unpublished}. */
  public Set<String> unpublished(String directory) {
    return snapshots.unpublished(directory);
  }

  /** Deletes what this process sees of a path; returns whether there was anything. */
  public boolean delete(String path) {
    snapshots.drop(path);
    return commits.delete(path);
  }

  /** Deletes all below a directory; returns whether there was anything. */
  public boolean deleteBelow(String directory) {
    List<Segment> below = index.listRecursively(directory);
    below.forEach(segment -> delete(segment.path()));
    return !below.isEmpty();
  }

  // ---- reading

  /** The live segment of a path, or null. */
  public Segment find(String path) {
    return index.find(path);
  }

  /** What lives where. */
  public Index index() {
    return index;
  }

  /** Whether plain state files may exist in this checkpoint, beside the merged ones (rule 10). */
  public boolean mayHavePlainFiles() {
    return !bornMerged();
  }

  private boolean bornMerged() {
    return learning.reader().bornMerged();
  }

  /** Opens a segment, and fetches ahead what Spark will want after it. */
  public FSInputStream open(Segment segment) throws IOException {
    return loads.open(segment);
  }

  /** Copies a segment to the local disk, checked: see {@link Loads#copyTo}. */
  public void copyTo(Segment segment, Path local) throws IOException {
    loads.copyTo(segment, local);
  }

  /** Copies a whole segment, checked, out of its merged file. */
  void copy(Segment segment, OutputStream out) throws IOException {
    loads.copy(segment, out);
  }

  /** Refreshes, then finds the live segment of a path: for one that should be there and is not. */
  public Segment findAfterRefresh(String path) throws IOException {
    source.refreshFromFiles(path);
    return index.find(path);
  }

  /** The error for a logical file that no merged file has. */
  public StateFileNotFoundException missing(String path) {
    return loads.missing(path);
  }

  /** Makes what is known of a path at least as new as the first call with this freshness key. */
  public void refreshFor(String path, FreshnessKey key) throws IOException {
    source.refreshFor(path, key);
    if (key.isOfQuery()) {
      snapshots.meets(path, run);
    }
  }

  /** Makes what is known of a path as new as this call. */
  public void refresh(String path) throws IOException {
    source.refreshFromFiles(path);
  }

  /** Refreshes completely now. */
  public void refresh() throws IOException {
    source.refreshFromFiles("");
  }

  /**
   * Begins a run of the query, unless it has begun: between two runs a checkpoint may be deleted or put back from a
   * copy.
   *
   * @param transport the way to the index service; null where there is none
   * @return false where this log cannot serve the run, and has to be opened anew
   */
  boolean beginRun(IndexTransport transport, FreshnessKey.QueryRun next) throws IOException {
    if (next.equals(run)) {
      return true;
    }
    if (!source.beginRun(transport, next)) {
      return false;
    }
    // A checkpoint that was deleted while it had no merged file leaves nothing to be found gone.
    knownDirectories.clear();
    run = next;
    return true;
  }

  /** The id of the newest run that has begun; null where none has. */
  public String lastRun() {
    FreshnessKey.QueryRun last = run;
    return last == null ? null : last.id();
  }

  /**
   * Directories that this process has made or found. Emptied whenever a merged file is gone, so that they are asked
   * anew.
   */
  public Set<String> knownDirectories() {
    return knownDirectories;
  }

  // ---- maintenance

  /** Does what is due in one of Spark's maintenance threads: cleans, and makes the view new enough for maintenance. */
  public void maintain() throws IOException {
    commits.sealDue();
    if (service == null) {
      cleaner().runIfDue();
    }
    source.refreshForMaintenance();
  }

  /** Cleans now; returns how many files it has unlinked. */
  public int clean() {
    commits.sealDue();
    return cleaner().run();
  }

  Cleaner cleaner() {
    return maintenance.cleaner();
  }

  /**
   * Does what has to happen while nobody commits. The process's housekeeper calls it every 100 ms. What fails in one
   * step may fail each time, so it keeps no other step from its work.
   */
  void tick() {
    long keepMs = keepMs();
    Housekeeping steps = new Housekeeping();
    steps.run(loads::closeIdle);
    steps.run(loads::dropStale);
    steps.run(() -> commits.served().forgetOlderThan(keepMs));
    steps.run(snapshots::dropUnclaimed);
    steps.run(commits::writeTombstonesIfDue);
    steps.run(commits::sealDue);
    steps.run(snapshots::uploadIfDue);
    if (service != null) {
      steps.run(() -> service.forgetUnserved(this::isLoaded, options.closedAfterMs()));
      steps.run(relocations::runIfDue);
    } else if (callsForCleaning(commits.served().idleMs(keepMs), keepMs)) {
      steps.run(() -> threads.execute(this::cleanIfDue));
    }
    steps.end();
  }

  /** In a thread of its own, so nobody hears of what is thrown. */
  private void cleanIfDue() {
    try {
      cleaner().runIfDue();
    } catch (RuntimeException | Error e) {
      LOG.warn(
          "Cleaning of {} stopped; trying again. What to do: if it goes on, mend the cause; dead files stay"
              + " until then",
          checkpoint(),
          e);
    }
  }

  /** Whether a cleaning pass is due that nobody else begins; {@code idleMs} is how long nobody has written here. */
  private boolean callsForCleaning(long idleMs, long keepMs) {
    IndexService answers = serves;
    if (answers != null) {
      return (idleMs < keepMs || answers.idleMs() < keepMs) && cleaner().isDueForAll();
    }
    // Spark's maintenance asks before it deletes, and comes back after a minute. What it has made garbage of goes now.
    // In a query without input it asks for nothing. What has died goes all the same, until the files of processes that
    // died meanwhile count as closed, too.
    return idleMs >= options.idleSealMs() && idleMs < keepMs && cleaner().hasMoreToDo() || cleaner().isPressing();
  }

  private boolean isLoaded(String partition) {
    return OpenStores.isAnyOpen(storage.stateDirectory(), partition) || commits.serves(partition + "/");
  }

  // ---- the index service

  /** Whether this log knows only what an index service tells it of the partitions that this process uses. */
  public boolean isServed() {
    return service != null;
  }

  /** Whether this log is the one behind the index service of its checkpoint. */
  public boolean answersExecutors() {
    return serves != null;
  }

  /** The index service that this log is behind; null where it is behind none. */
  IndexService service() {
    return serves;
  }

  /** As {@link #serve}, where the queries' tasks run in this process. */
  public void serveQueries() {
    if (serves == null) {
      serve();
    }
  }

  /**
   * Makes this log the one behind the index service of its checkpoint, in the driver's process: from now on executors
   * report to it, and only it cleans.
   */
  synchronized IndexService serve() {
    if (serves == null) {
      serves = new IndexService(index, rules, clock, learning, maintenance.garbage());
      cleaner().cleansForAll(process.maintenanceMs());
      cleaner().consolidates(true);
      cleaner().joinsSmallFiles(true);
      files.everybodyReports();
    }
    return serves;
  }

  // ---- its life

  /** Somebody asks for this log. */
  public void used() {
    usedMs = Clocks.monotonicMs();
  }

  /** Whether nobody has used this log for long, and nothing waits in it. */
  boolean isForgettable() {
    long keepMs = keepMs();
    IndexService answers = serves;
    return Clocks.monotonicMs() - usedMs >= keepMs
        && commits.served().idleMs(keepMs) >= keepMs
        && (answers == null || answers.idleMs() >= keepMs)
        && commits.isIdle()
        && !OpenStores.isAnyOpen(storage.stateDirectory());
  }

  /** A log that nobody uses goes on cleaning for so long. Others' files count as closed by then. */
  private long keepMs() {
    return 2 * options.closedAfterMs() + keepCleaningMs;
  }

  /** Seals all open files: a process that stops cleanly leaves nothing open (rule 7). */
  public void seal() {
    commits.sealAll();
    loads.closeAll();
  }

  /** Stops writing: the checkpoint was deleted. */
  void abandon() {
    IndexService ended = serves;
    if (ended != null) {
      ended.close();
    }
    commits.abandon();
    loads.closeAll();
    snapshots.closeAll();
  }

  /** Forgets a merged file that is gone. A lane that has it open notices by itself, in its own time. */
  private void forget(MergedFile file) {
    IndexService known = serves;
    if (known != null) {
      // Before its entries go: a report of it that comes now must not bring them back.
      known.gone(file.name());
    }
    index.remove(file);
    loads.close(file.name());
    knownDirectories.clear();
  }

  /** The checkpoint's location, for messages. */
  public String checkpoint() {
    return storage.checkpoint();
  }

  /** This process's id in the checkpoint. */
  public long writerId() {
    return writer.id();
  }

  public LogMetrics metrics() {
    return metrics;
  }

  public Options options() {
    return options;
  }

  /** Works with other options from now on, as when a query is restarted with them. */
  void options(Options changed) {
    if (!changed.equals(options)) {
      LOG.info("Options of {} are now {}", checkpoint(), changed);
      options = changed;
    }
  }
}
