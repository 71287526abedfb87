package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateFileNotFoundException;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.format.PathRules;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntSupplier;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.CRC32C;
import java.util.zip.CheckedOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The merged files of one checkpoint, as one process reads and writes them.
 *
 * <p>A task commits by closing the stream that {@link #create} gave it. {@link #commit} queues its payload in a {@link
 * Lane}, and with a snapshot's zip the SSTs that were staged for it. The lane writes all that wait as one group and
 * flushes once ({@link OpenFile#commit}), and the {@link Index} takes the new entries in. Then the task goes on. No
 * metadata call was made.
 */
public final class MergedLog {
  private static final Logger LOG = LoggerFactory.getLogger(MergedLog.class);
  /** Names of Spark's threads that upload snapshots and delete old versions begin so. */
  private static final String MAINTENANCE_THREAD = "state-store-maintenance";
  /** A file may be as large as this share of the dead bytes that are allowed, because several are open at a time. */
  private static final double SHARE_OF_GARBAGE = 0.25;
  /** No file is sealed before it has so many bytes, however little lives: each costs some calls. */
  private static final long SMALL_FILE = 2 << 20;
  /** As long as nothing has died, small files gain nothing. */
  private static final long SMALL_FILE_BEFORE_DELETIONS = 8 << 20;

  private static final String ZIP = ".zip";
  /** What a batch has changed, with its version. */
  private static final Pattern CHANGE = Pattern.compile(".*/(\\d{1,18})(?:_[^/]*)?\\.(?:changelog|delta)(?:\\.crc)?");
  /** A process without commits goes on cleaning for so long after others' files count as closed. */
  static volatile long keepCleaningMs = 300_000;

  private final Storage storage;
  private final ProcessFacts process;
  private final Index index = new Index();
  private final LogMetrics metrics = new LogMetrics();
  private final Clocks.Watch watch = new Clocks.Watch();
  private final Rules rules = new Rules(this::options, watch::now);
  private final ServedPartitions served = new ServedPartitions();
  private final PendingTombstones tombstones = new PendingTombstones();
  private final StagedFiles staged = new StagedFiles();
  private final CommitWindow window =
      new CommitWindow(this::options, this::expectedPartitions, metrics::recentWriteNanos);
  private final WriterIdentity writer;
  private final LocalSpace localSpace;
  private final LanePool lanes;
  private final FileHandles handles;
  private final SegmentReader reader;
  private final LazyCopies lazyCopies;
  private final Prefetcher prefetcher;
  private final Pins pins;
  private final IndexReader indexReader;
  private final HybridClock clock;
  private final Refresher refresher;
  private final FilesSource files;
  /** Null where this log reads the files, because it works by itself or is the one behind the index service. */
  private final ServiceSource service;
  /** One of the two. */
  private final IndexSource source;
  /** Null as {@code service}. */
  private final ServedRelocations relocations;
  private final BatchCommits batchCommits;
  private final SnapshotGuard snapshotGuard;
  private final EarlyUploads earlyUploads;
  private final Garbage garbage;
  private final Cleaner cleaner;
  private final ExecutorService threads;
  private final Set<String> knownDirectories = ConcurrentHashMap.newKeySet();
  private volatile Options options;
  /** Answers executors; null where this process does not. */
  private volatile IndexService serves;
  private volatile long usedMs = Clocks.monotonicMs();
  /** The newest run that has begun. */
  private volatile FreshnessKey.QueryRun run;
  private final AtomicBoolean warnedOfNoBatch = new AtomicBoolean();
  private final AtomicBoolean warnedOfOtherBatch = new AtomicBoolean();
  private final AtomicBoolean warnedOfNoEarlyUploads = new AtomicBoolean();

  /**
   * The process that a log works in.
   *
   * @param headerFields what the headers of new files say of it
   * @param localDirectory makes a local directory for what does not fit into memory
   * @param taskSlots how many tasks run at the same time
   * @param maintenanceMs Spark's maintenance interval
   * @param taskEnd of the task for which the current thread works
   */
  public record ProcessFacts(
      Supplier<Map<String, String>> headerFields,
      Supplier<Path> localDirectory,
      IntSupplier taskSlots,
      long maintenanceMs,
      TaskEnd taskEnd) {}

  /** The end of a task of Spark's. */
  public interface TaskEnd {
    /** Where there are no tasks. */
    TaskEnd NONE = last -> false;

    /** What a task waits for. */
    interface Wait {
      void await() throws IOException;
    }

    /**
     * Makes the task of the current thread wait before it ends. The task fails where the wait does.
     *
     * @return false where the thread works for no task
     */
    boolean waitsFor(Wait last);

    /** The batch of a streaming query for which the task of the current thread works; -1 where there is none. */
    default long batch() {
      return -1;
    }

    /** Runs something if the task of the current thread fails. */
    default void ifFails(Runnable action) {}
  }

  /**
   * Opens the log of a checkpoint and reads what is in it.
   *
   * @param stateDirectory {@code <checkpoint>/state} on {@code fs}
   * @param threads write and read
   * @param service the way to the index service; null where the log works by itself
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
      IndexTransport service,
      String queryRunId,
      String path,
      FreshnessKey... keys)
      throws IOException {
    this.options = options;
    this.process = process;
    this.threads = threads;
    storage = new Storage(fs, stateDirectory);
    localSpace = new LocalSpace(process.localDirectory());
    clock = new HybridClock(Clocks::wallMs);
    writer = new WriterIdentity(process.headerFields(), this::bornMerged);
    ServiceMessages.Opened opened =
        service == null ? null : ServiceSource.open(service, stateDirectory.toString(), queryRunId);
    this.service = opened == null
        ? null
        : new ServiceSource(
            service, stateDirectory.toString(), opened, writer.id(), index, rules, clock, metrics, this::forget,
            () -> MergedLogs.replace(this), threads);
    Reporter reporter = this.service == null ? Reporter.NONE : this.service;
    OpenFile.Factory made =
        new OpenFile.Factory(storage, index, rules, clock, writer, this::refreshNumber, reporter);
    lanes = new LanePool(
        () -> new Lane(made, window, tombstones, metrics, this::holdsDeletionsBack, this::fileSize, threads),
        () -> options().maxOpenFiles());
    handles = new FileHandles(storage, rules);
    reader = new SegmentReader(storage, handles, this::findAfterRefresh, this::options);
    lazyCopies = new LazyCopies(reader, this::options, this::cache, metrics, threads);
    prefetcher = new Prefetcher(index, this::options, this::cache, handles, reader, lazyCopies, threads);
    pins = new Pins(storage, rules);
    RelocationMarkers markers = new RelocationMarkers(storage, index, rules, writer, metrics, threads);
    indexReader = new IndexReader(storage, index, rules, clock);
    refresher = new Refresher(
        storage, index, rules, metrics, writer.id(), indexReader, markers, pins, threads, this::forget);
    files = new FilesSource(refresher, index, stateDirectory.toString());
    source = this.service == null ? files : this.service;
    snapshotGuard = new SnapshotGuard(
        storage, index, rules, writer.id(), source, this::bornMerged);
    garbage = new Garbage(index, rules, pins, this::serves);
    earlyUploads = new EarlyUploads(
        stateDirectory, this::options, lanes::forEarlyUploads, localSpace, index, pins, metrics, garbage::written,
        threads);
    Relocator relocator = new Relocator(
        garbage, source, storage, markers, metrics, reader, this::newBuffer, this::writeRelocated);
    cleaner = new Cleaner(
        storage, index, rules, metrics, writer.id(), tombstones, refresher, markers, pins,
        new SourcePins(storage, index, writer, tombstones, pins), garbage, relocator,
        new Consolidation(made, pins), this::writeTombstones, this::forget);
    relocations = this.service == null
        ? null
        : new ServedRelocations(
            this.service, served, tombstones, garbage, relocator, rules, process.maintenanceMs(), threads);
    batchCommits = new BatchCommits(
        this.service == null ? new LocalDriver() : this.service, this::writeBatch, threads, storage.checkpoint());
    run = queryRunId.isEmpty() ? null : new FreshnessKey.QueryRun(queryRunId);
    if (this.service != null) {
      indexReader.bornMerged(opened.bornMerged());
      if (keys.length > 0) {
        source.refreshFor(path, keys);
      }
      return;
    }
    List<FreshnessKey> all = new ArrayList<>(List.of(keys));
    if (run != null) {
      all.add(run);
    }
    if (all.isEmpty()) {
      refresher.refresh();
    } else {
      refresher.refreshFor(all.toArray(FreshnessKey[]::new));
    }
    if (!bornMerged() && index.files().isEmpty()) {
      indexReader.bornMerged(!storage.hasPlainState());
    }
  }

  // ---- writing

  /** Starts a logical file. It becomes visible when the stream is closed, and replaces what was there. */
  public LogOutputStream create(String path) throws IOException {
    return create(path, "");
  }

  /**
   * As {@link #create(String)}, for a run of the query. Where options say so, a change of a batch becomes durable at the
   * end of the batch, and the task does not wait for that.
   */
  public LogOutputStream create(String path, String queryRunId) throws IOException {
    checkPath(path);
    pins.checkUnclaimed();
    if (!path.endsWith(ZIP) || !isMaintenanceThread()) {
      // A late upload does not show that the partition is still this process's.
      served.written(path);
    }
    BatchCommits.Batch batch = batch(path, queryRunId);
    LogOutputStream stream = new LogOutputStream(this, path, newBuffer(), batch);
    if (batch == null) {
      window.opened(stream, path);
    } else {
      process.taskEnd().ifFails(stream::taskFailed);
    }
    return stream;
  }

  /** The batch at whose end a logical file becomes durable; null where that is when it is closed. */
  private BatchCommits.Batch batch(String path, String queryRunId) throws IOException {
    boolean mayWait = options.groupCommitOfBatch() && !queryRunId.isEmpty() && (service != null || serves != null)
        && !LanePool.isSnapshot(path);
    long said = mayWait ? process.taskEnd().batch() : -1;
    long number = said < 0 ? -1 : writtenBy(path);
    if (said >= 0 && said != number) {
      if (!warnedOfOtherBatch.getAndSet(true)) {
        LOG.warn("groupCommit.scope=batch has no effect for {}: the job that makes {} runs in a thread that has batch {} in"
            + " its local properties, as threads of a pool have that were made in an earlier batch, or for another query."
            + " Each commit of such a job is durable before its task ends. What to do: run such jobs in threads that"
            + " the batch makes, or leave groupCommit.scope out", checkpoint(), path, said);
      }
      return null;
    }
    if (number < 0) {
      if (mayWait && !isMaintenanceThread() && !warnedOfNoBatch.getAndSet(true)) {
        LOG.warn("groupCommit.scope=batch has no effect for {}: {} was made outside of a task. Spark does that where it"
            + " writes checksum files, and each commit is durable before its task ends. What to do: set"
            + " spark.sql.streaming.checkpoint.fileChecksum.enabled=false, or leave groupCommit.scope out",
            checkpoint(), path);
      }
      return null;
    }
    BatchCommits.Batch batch = batchCommits.batch(queryRunId, number);
    return process.taskEnd().waitsFor(batch::awaitOwed) ? batch : null;
  }

  /** The batch that writes a changelog or a delta: one loads the version of its number, and commits the next. */
  private static long writtenBy(String path) {
    Matcher version = CHANGE.matcher(path);
    return version.matches() ? Long.parseLong(version.group(1)) - 1 : -1;
  }

  /** Keeps a file for the end of its batch. Its stamp says when it was written. */
  Commit keep(String path, Payload payload, long openedBy, BatchCommits.Batch batch) throws IOException {
    Commit commit = new Commit(List.of(new Commit.Item(path, payload, null, clock.next())), List.of(), openedBy);
    batch.add(commit);
    return commit;
  }

  private void writeBatch(List<Commit> commits) throws IOException {
    Lane lane = lanes.forTombstones();
    lane.writeTogether(commits);
    for (Commit commit : commits) {
      commit.await();
      lane.awaitReport(commit);
      garbage.written(commit.length());
    }
  }

  /** Where the driver's own process runs the tasks. */
  private final class LocalDriver implements BatchCommits.Driver {
    private final String state = storage.stateDirectory().toString();

    @Override
    public void owes(String run, long batch) throws IOException {
      BatchDebts.owes(state, new BatchDebts.Debtor(writer.id(), run, batch), this);
    }

    @Override
    public BatchDebts.Call call(String run, long batch) throws IOException {
      return IndexTransport.await(BatchDebts.call(state, new BatchDebts.Debtor(writer.id(), run, batch)));
    }

    @Override
    public void paid(String run, long batch, String failure) {
      BatchDebts.paid(state, new BatchDebts.Debtor(writer.id(), run, batch), failure);
    }
  }

  private PayloadBuffer newBuffer() {
    return new PayloadBuffer(localSpace, options.bufferMemory());
  }

  /** The stream was closed or cancelled. */
  void left(LogOutputStream stream) {
    window.left(stream);
  }

  /** Makes a file durable, together with its companions: what was staged for it. */
  void commit(LogOutputStream stream, String path, Payload payload, long openedBy, UploadWatch watch)
      throws IOException {
    String store = path.endsWith(ZIP) ? SnapshotZip.store(path) : null;
    EarlyFiles.Publication early = EarlyFiles.Publication.NONE;
    List<Commit.Item> companions = List.of();
    boolean done = false;
    try {
      List<Commit.Item> items = new ArrayList<>();
      if (store != null) {
        Set<String> named = SnapshotGuard.filesNamed(path, payload);
        early = EarlyFiles.publication(
            storage.stateDirectory(), store, named, each -> staged.find(each) != null, index);
        companions = companions(store, path, named, early);
        for (Commit.Item companion : companions) {
          if (!early.leavesOut(companion.path())) {
            items.add(companion);
          }
        }
      }
      items.add(new Commit.Item(path, payload));
      Commit commit = new Commit(items, List.of(), openedBy, watch);
      Lane lane = lanes.choose(commit);
      boolean lead = lane.submit(commit);
      window.left(stream);
      if (lead) {
        lane.lead(commit);
      }
      commit.await();
      awaitReport(path, lane, commit);
      done = true;
      garbage.written(commit.length());
    } finally {
      early.ended(done);
      if (done) {
        companions.forEach(this::keepOnHost);
      } else if (store != null) {
        staged.giveBack(store, SnapshotZip.version(path), companions);
      }
    }
  }

  /** A file that was staged is durable. Keeps its bytes for a restart on this host. */
  private void keepOnHost(Commit.Item item) {
    Segment written = index.find(item.path());
    if (written != null) {
      cache().written(written, item.payload().file());
    }
    item.payload().close();
  }

  private HostCache cache() {
    return HostCache.of(options);
  }

  /**
   * Waits for the report of a commit. Spark counts on what a task has committed once the task has ended, so a task goes
   * on meanwhile, and its end waits. A snapshot's files are named by later snapshots as soon as they are written.
   */
  private void awaitReport(String path, Lane lane, Commit commit) throws IOException {
    if (!commit.report().isUnderWay() || LanePool.isSnapshot(path)
        || !process.taskEnd().waitsFor(() -> lane.awaitReport(commit))) {
      lane.awaitReport(commit);
    }
  }

  /** Checks a snapshot and takes what was staged for it. */
  private List<Commit.Item> companions(
      String store, String zip, Set<String> named, EarlyFiles.Publication early) throws IOException {
    Predicate<String> comes = path -> staged.find(path) != null && !early.leavesOut(path);
    if (named.isEmpty()) {
      // A zip that cannot be read as a snapshot's takes all that is staged for its store.
      snapshotGuard.check(zip, named, comes, served.unwrittenMs(zip));
      return staged.take(store, path -> true);
    }
    staged.named(store, SnapshotZip.version(zip), named);
    snapshotGuard.check(zip, named, comes, served.unwrittenMs(zip));
    return staged.take(store, named::contains);
  }

  /** A store of this process was closed, so no zip will name what is staged for it. */
  void storeClosed(String store) {
    staged.dropStore(store);
  }

  /**
   * Stages a local immutable file of a RocksDB snapshot. It becomes visible with the zip that names it.
   *
   * @return false where {@code path} is not such a file, and has to be created as any other
   */
  public boolean stage(String path, Path localFile) throws IOException {
    String store = StagedFiles.storeOf(path);
    if (store == null) {
      return false;
    }
    checkPath(path);
    if (EarlyFiles.isKnown(storage.stateDirectory(), store)) {
      EarlyFiles.handedOver(storage.stateDirectory(), store, path, localFile);
    } else if (options.uploadAsCreated() && !warnedOfNoEarlyUploads.getAndSet(true)) {
      LOG.warn("upload=created has no effect for {}: RocksDB says which SSTs it makes with the provider door, on Spark"
          + " 4.1 and later. They are written with their snapshots. What to do: use that door, or leave upload out",
          checkpoint());
    }
    staged.add(store, new Commit.Item(path, localSpace.keep(localFile)));
    return true;
  }

  /** Deletes an SST that was uploaded and that no snapshot is going to name, if it is still that which lives there. */
  void deleteEarly(EarlyFile file) {
    Tombstone tombstone = null;
    synchronized (index) {
      Segment live = index.find(file.path());
      if (live != null && live.compareKeyTo(file.entry().stamp(), file.entry().writer()) == 0) {
        tombstone = index.delete(file.path());
      }
    }
    if (tombstone != null) {
      tombstones.add(tombstone);
      metrics.uploadedInVain(file.bytes());
    }
  }

  /** The files of a directory that no snapshot names yet, see {@link EarlyFiles#unpublished}. */
  public Set<String> unpublished(String directory) {
    return EarlyFiles.unpublished(storage.stateDirectory(), directory);
  }

  /** Deletes what this process sees of a path; returns whether there was anything. */
  public boolean delete(String path) {
    staged.drop(path);
    Tombstone tombstone = index.delete(path);
    if (tombstone == null) {
      return false;
    }
    tombstones.add(tombstone);
    return true;
  }

  /** Deletes all below a directory; returns whether there was anything. */
  public boolean deleteBelow(String directory) {
    List<Segment> below = index.listRecursively(directory);
    below.forEach(s -> delete(s.path()));
    return !below.isEmpty();
  }

  private void writeTombstones(List<Tombstone> needed) throws IOException {
    write(lanes.forTombstones(), new Commit(List.of(), needed, -1));
  }

  private void writeRelocated(List<Commit.Item> items) throws IOException {
    write(lanes.forRelocations(), new Commit(items, List.of(), -1));
  }

  private static void write(Lane lane, Commit commit) throws IOException {
    if (lane.submit(commit)) {
      lane.lead(commit);
    }
    commit.await();
  }

  /** Whether this process has written to a path's partition lately, and so probably will again. */
  private boolean serves(String path) {
    return served.unwrittenMs(path) < options.closedAfterMs();
  }

  private int expectedPartitions() {
    return (int) Math.min(process.taskSlots().getAsInt(), served.writtenWithin(options.idleSealMs()));
  }

  /** Bytes after which an open file is sealed. Small files soon hold nothing live, or little that has to be moved. */
  private long fileSize() {
    double share = SHARE_OF_GARBAGE * (options.maxSpaceAmplification() - 1) * source.liveBytes();
    long least = tombstones.count() == 0 ? SMALL_FILE_BEFORE_DELETIONS : SMALL_FILE;
    return Math.min(options.maxFileSize(), Math.max(least, (long) share));
  }

  private boolean holdsDeletionsBack() {
    return service == null && cleaner.holdsDeletionsBack();
  }

  private void checkPath(String path) throws StateStoreFilesException {
    if (!PathRules.isValidPath(path)) {
      throw new StateStoreFilesException(
          Id.PSS_BAD_PATH, "'" + path + "' is no path below state/ of checkpoint " + checkpoint() + ".");
    }
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
    return indexReader.bornMerged();
  }

  /** Opens a segment, and fetches ahead what Spark will want after it. */
  public FSInputStream open(Segment segment) throws IOException {
    byte[] fetched = prefetcher.take(segment);
    if (fetched == null && segment.length() <= SegmentReader.WHOLE) {
      fetched = reader.read(segment);
      prefetcher.wasRead(segment, fetched);
    }
    if (fetched == null) {
      return new SegmentInputStream(reader, segment);
    }
    prefetcher.opened(segment, fetched);
    return new SegmentInputStream(segment, fetched);
  }

  /**
   * Copies a segment to the local disk, checked. An SST comes from the host's cache where that has it; of others a lazy
   * load gets the ends.
   */
  public void copyTo(Segment segment, Path local) throws IOException {
    // The file that is there may be an entry of the cache, too, so nothing is written into it.
    Files.deleteIfExists(local);
    if (cache().linkTo(segment, local)) {
      metrics.cached(segment);
      return;
    }
    if (lazyCopies.copy(segment, local)) {
      return;
    }
    boolean whole = false;
    CheckedOutputStream checked = new CheckedOutputStream(Files.newOutputStream(local), new CRC32C());
    try (checked) {
      copy(segment, checked);
      whole = true;
    } finally {
      if (!whole) {
        Files.deleteIfExists(local);
      }
    }
    metrics.fetched(segment, segment.length());
    if ((int) checked.getChecksum().getValue() == segment.entry().crc32c()) {
      cache().fetched(segment, local);
    }
  }

  /** Copies a whole segment, checked, out of its merged file. */
  void copy(Segment segment, OutputStream out) throws IOException {
    byte[] fetched = prefetcher.take(segment);
    if (fetched != null) {
      out.write(fetched);
    } else {
      reader.copy(segment, out);
    }
  }

  /** Refreshes, then finds the live segment of a path: for one that should be there and is not. */
  public Segment findAfterRefresh(String path) throws IOException {
    source.refreshFromFiles(path);
    return index.find(path);
  }

  /** The error for a logical file that no merged file has. */
  public StateFileNotFoundException missing(String path) {
    return reader.notFound(path, index.files());
  }

  /** Makes what is known of a path at least as new as the first call with this freshness key. */
  public void refreshFor(String path, FreshnessKey key) throws IOException {
    source.refreshFor(path, key);
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
  boolean beginRun(IndexTransport transport, FreshnessKey.QueryRun run) throws IOException {
    if (run.equals(this.run)) {
      return true;
    }
    if (!source.beginRun(transport, run)) {
      return false;
    }
    // A checkpoint that was deleted while it had no merged file leaves nothing to be found gone.
    knownDirectories.clear();
    this.run = run;
    return true;
  }

  /** The id of the newest run that has begun; null where none has. */
  public String lastRun() {
    FreshnessKey.QueryRun last = run;
    return last == null ? null : last.id();
  }

  private long refreshNumber() {
    return refresher.number();
  }

  /**
   * Directories that this process has made or found. Emptied whenever a merged file is gone, so that they are asked
   * anew.
   */
  public Set<String> knownDirectories() {
    return knownDirectories;
  }

  // ---- maintenance

  /** Whether the current thread is one of those in which Spark uploads snapshots and deletes old versions. */
  public static boolean isMaintenanceThread() {
    return Thread.currentThread().getName().startsWith(MAINTENANCE_THREAD);
  }

  /** Does what is due in one of Spark's maintenance threads: cleans, and makes the view new enough for maintenance. */
  public void maintain() throws IOException {
    sealDue();
    if (service == null) {
      cleaner.runIfDue();
    }
    source.refreshForMaintenance();
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
      serves = new IndexService(index, rules, clock, refresher, garbage, indexReader, pins);
      cleaner.cleansForAll(process.maintenanceMs());
      cleaner.consolidates(true);
      cleaner.joinsSmallFiles(true);
      files.everybodyReports();
    }
    return serves;
  }

  /** Cleans now; returns how many files it has unlinked. */
  public int clean() {
    sealDue();
    return cleaner.run();
  }

  Cleaner cleaner() {
    return cleaner;
  }

  /** Seals the files that are full, or were left alone for long. */
  void sealDue() {
    lanes.all().forEach(Lane::sealIfDue);
  }

  /**
   * Does what has to happen while nobody commits. The process's housekeeper calls it every 100 ms. What fails in one
   * step may fail each time, so it keeps no other step from its work.
   */
  void tick() {
    long keepMs = keepMs();
    Housekeeping steps = new Housekeeping();
    steps.run(handles::closeIdle);
    steps.run(prefetcher::dropStale);
    steps.run(() -> served.forgetOlderThan(keepMs));
    steps.run(() -> staged.dropUnclaimed(
        options.closedAfterMs(), store -> OpenStores.isOpen(storage.stateDirectory(), store)));
    if (tombstones.haveWaited(options.idleSealMs())) {
      steps.run(() -> lanes.forTombstones().writeTombstones());
    }
    steps.run(this::sealDue);
    steps.run(earlyUploads::runIfDue);
    if (service != null) {
      steps.run(() -> service.forgetUnserved(this::isLoaded, options.closedAfterMs()));
      steps.run(relocations::runIfDue);
    } else if (callsForCleaning(served.idleMs(keepMs), keepMs)) {
      steps.run(() -> threads.execute(this::cleanIfDue));
    }
    steps.end();
  }

  /** In a thread of its own, so nobody hears of what is thrown. */
  private void cleanIfDue() {
    try {
      cleaner.runIfDue();
    } catch (RuntimeException | Error e) {
      LOG.warn("Cleaning of {} stopped; trying again. What to do: if it goes on, mend the cause; dead files stay"
          + " until then",
          checkpoint(), e);
    }
  }

  /** Steps of which each is made, whatever becomes of the others. */
  private static final class Housekeeping {
    private Throwable failure;

    void run(Runnable step) {
      try {
        step.run();
      } catch (RuntimeException | Error e) {
        if (failure == null) {
          failure = e;
        }
      }
    }

    /** Fails as the first step did that failed. */
    void end() {
      if (failure instanceof Error error) {
        throw error;
      }
      if (failure instanceof RuntimeException runtime) {
        throw runtime;
      }
    }
  }

  /** Whether a cleaning pass is due that nobody else begins; {@code idleMs} is how long nobody has written here. */
  private boolean callsForCleaning(long idleMs, long keepMs) {
    IndexService answers = serves;
    if (answers != null) {
      return (idleMs < keepMs || answers.idleMs() < keepMs) && cleaner.isDueForAll();
    }
    // Spark's maintenance asks before it deletes, and comes back after a minute. What it has made garbage of goes now.
    // In a query without input it asks for nothing. What has died goes all the same, until the files of processes that
    // died meanwhile count as closed, too.
    return idleMs >= options.idleSealMs() && idleMs < keepMs && cleaner.hasMoreToDo() || cleaner.isPressing();
  }

  private boolean isLoaded(String partition) {
    return OpenStores.isAnyOpen(storage.stateDirectory(), partition) || serves(partition + "/");
  }

  /** Somebody asks for this log. */
  public void used() {
    usedMs = Clocks.monotonicMs();
  }

  /** Whether nobody has used this log for long, and nothing waits in it. */
  boolean isForgettable() {
    long keepMs = keepMs();
    IndexService answers = serves;
    return Clocks.monotonicMs() - usedMs >= keepMs
        && served.idleMs(keepMs) >= keepMs
        && (answers == null || answers.idleMs() >= keepMs)
        && tombstones.isEmpty()
        && lanes.all().stream().noneMatch(Lane::isOpen)
        && batchCommits.isEmpty()
        && !OpenStores.isAnyOpen(storage.stateDirectory());
  }

  /** A log that nobody uses goes on cleaning for so long. Others' files count as closed by then. */
  private long keepMs() {
    return 2 * options.closedAfterMs() + keepCleaningMs;
  }

  /** Seals all open files: a process that stops cleanly leaves nothing open (rule 7). */
  public void seal() {
    if (!tombstones.isEmpty()) {
      lanes.forTombstones().writeTombstones();
    }
    lanes.all().forEach(Lane::sealNow);
    handles.closeAll();
  }

  /** Stops writing: the checkpoint was deleted. */
  void abandon() {
    IndexService ended = serves;
    if (ended != null) {
      ended.close();
    }
    batchCommits.close();
    lanes.all().forEach(Lane::abandon);
    handles.closeAll();
    staged.closeAll();
  }

  /** Forgets a merged file that is gone. A lane that has it open notices by itself, in its own time. */
  private void forget(MergedFile file) {
    IndexService known = serves;
    if (known != null) {
      // Before its entries go: a report of it that comes now must not bring them back.
      known.gone(file.name());
    }
    index.remove(file);
    handles.close(file.name());
    knownDirectories.clear();
  }

  // ---- what it is

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
