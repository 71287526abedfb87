package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateFileNotFoundException;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.format.PathRules;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The merged files of one checkpoint, as one process sees and writes them.
 *
 * <p>What happens when a task commits: Spark closes the stream that {@link #create} gave it; {@link #commit} puts its
 * payload, and for a snapshot's zip the staged SSTs with it, into the queue of a {@link Lane}; the lane writes all that
 * wait as one group and flushes once ({@link OpenFile#commit}); the {@link Index} takes the new entries in; the task
 * goes on. No metadata call was made.
 */
public final class MergedLog implements LogContext {
  private static final Logger LOG = LoggerFactory.getLogger(MergedLog.class);
  /** The age of a view that maintenance may work with: a stale view only deletes less. */
  private static final long MAINTENANCE_VIEW_MS = 10_000;

  /** A file may be as large as this share of the dead bytes that are allowed: several are open at a time. */
  private static final double SHARE_OF_GARBAGE = 0.25;
  /** No file is sealed before it has so many bytes, however little lives: each costs some calls. */
  private static final long SMALL_FILE = 2 << 20;
  /** As long as nothing has died, there is nothing to be won by small files. */
  private static final long SMALL_FILE_BEFORE_DELETIONS = 8 << 20;

  private static final String ZIP = ".zip";
  /** For so long after others' files count as closed a process without commits goes on cleaning. */
  private static final long KEEP_CLEANING_MS = 300_000;

  private final String checkpoint;
  private final Storage storage;
  private final Supplier<Map<String, String>> identity;
  private final IntSupplier taskSlots;
  private final HybridClock clock = new HybridClock(Clocks::wallMs);
  private final Clocks.Watch watch = new Clocks.Watch();
  private final Index index = new Index();
  private final LogMetrics metrics = new LogMetrics();
  private final Company company = new Company(metrics::recentWriteNanos);
  private final PendingTombstones tombstones = new PendingTombstones();
  private final StagedFiles staged = new StagedFiles();
  private final LocalSpace localSpace;
  private final LanePool lanes;
  private final FileHandles handles;
  private final SegmentReader reader;
  private final Prefetcher prefetcher;
  private final Pins pins = new Pins(this);
  private final Refresher refresher;
  private final SnapshotGuard snapshotGuard;
  private final Relocator relocator;
  private final Cleaner cleaner;
  private final long writerId = new SecureRandom().nextLong() >>> 1;
  private final AtomicInteger nextFile = new AtomicInteger();
  private final ExecutorService threads;
  private final Set<String> knownDirectories = ConcurrentHashMap.newKeySet();
  private final Map<String, Long> servedPartitions = new ConcurrentHashMap<>();
  private volatile Options options;

  /**
   * Opens the log of a checkpoint and reads what is in it.
   *
   * @param checkpoint its location, for messages
   * @param fs its file system
   * @param stateDirectory {@code <checkpoint>/state}
   * @param options how to work
   * @param identity what the headers of new files say of this process
   * @param localDirectory makes a local directory for what does not fit into memory
   * @param taskSlots how many tasks run at the same time in this process
   * @param threads to write and read with
   * @param occasions of the question for which it is opened, see {@link #refreshFor}
   */
  MergedLog(
      String checkpoint,
      FileSystem fs,
      org.apache.hadoop.fs.Path stateDirectory,
      Options options,
      Supplier<Map<String, String>> identity,
      Supplier<Path> localDirectory,
      IntSupplier taskSlots,
      ExecutorService threads,
      Object... occasions)
      throws IOException {
    this.checkpoint = checkpoint;
    this.options = options;
    this.identity = identity;
    this.taskSlots = taskSlots;
    this.threads = threads;
    storage = new Storage(fs, stateDirectory);
    localSpace = new LocalSpace(localDirectory);
    lanes = new LanePool(this, threads);
    handles = new FileHandles(this);
    reader = new SegmentReader(checkpoint, handles, this::refreshAndFind, this::options);
    prefetcher = new Prefetcher(this, handles, reader, threads);
    Intents intents = new Intents(this, threads);
    refresher = new Refresher(this, intents, pins, threads, this::onGone);
    snapshotGuard = new SnapshotGuard(this, refresher, path -> staged.find(path) != null);
    relocator =
        new Relocator(this, refresher, intents, pins, reader, localSpace, this::serves, this::writeRelocated);
    cleaner = new Cleaner(this, refresher, intents, pins, relocator, this::writeTombstones, this::onGone);
    if (occasions.length == 0) {
      refresher.refresh();
    } else {
      refresher.refreshFor(occasions);
    }
    if (!refresher.bornMerged() && index.files().isEmpty()) {
      refresher.bornMerged(!storage.hasPlainState());
    }
  }

  // ---- writing

  /** Starts a logical file. It becomes visible when the stream is closed, replacing what was there. */
  public LogOutputStream create(String path) throws IOException {
    checkPath(path);
    pins.checkUnclaimed();
    if (!path.endsWith(ZIP) || !MaintenanceThreads.isCurrent()) {
      // A late upload says nothing about whose partition it is.
      servedPartitions.put(partition(path), Clocks.monotonicMs());
    }
    PayloadBuffer payload = new PayloadBuffer(localSpace, options.bufferMemory());
    LogOutputStream stream = new LogOutputStream(this, path, payload);
    company.opened(stream, path);
    return stream;
  }

  /** The stream has nothing more to say. */
  void left(LogOutputStream stream) {
    company.left(stream);
  }

  /** Makes a file durable, with what was staged for it. */
  void commit(LogOutputStream stream, String path, Payload payload, long openedBy, UploadWatch watch)
      throws IOException {
    String store = path.endsWith(ZIP) ? SnapshotZip.store(path) : null;
    List<Commit.Item> riders = store == null ? List.of() : riders(store, path, payload);
    boolean done = false;
    try {
      List<Commit.Item> items = new ArrayList<>(riders);
      items.add(new Commit.Item(path, payload));
      Commit commit = new Commit(items, List.of(), openedBy, watch);
      Lane lane = lanes.choose(commit);
      boolean lead = lane.submit(commit);
      company.left(stream);
      if (lead) {
        lane.lead(commit);
      }
      commit.await();
      done = true;
      relocator.written(commit.length());
    } finally {
      if (done) {
        riders.forEach(r -> r.payload().close());
      } else if (store != null) {
        staged.giveBack(store, SnapshotZip.version(path), riders);
      }
    }
  }

  /** What was staged for a snapshot, which is checked first. */
  private List<Commit.Item> riders(String store, String zip, Payload payload) throws IOException {
    Set<String> named = SnapshotGuard.filesNamed(zip, payload);
    if (named.isEmpty()) {
      // A zip that cannot be read as a snapshot's takes whatever is there, as ever.
      snapshotGuard.check(zip, named, unwrittenMs(zip));
      return staged.take(store, path -> true);
    }
    staged.named(store, SnapshotZip.version(zip), named);
    snapshotGuard.check(zip, named, unwrittenMs(zip));
    return staged.take(store, named::contains);
  }

  /** A store of this process was closed, whose snapshots will not come any more. */
  void storeClosed(String store) {
    staged.dropStore(store);
  }

  /**
   * Takes a local immutable file of a RocksDB snapshot. It becomes visible with the zip that names it.
   *
   * @return false where {@code path} is not such a file, and has to be created as any other
   */
  public boolean stage(String path, Path localFile) throws IOException {
    String store = StagedFiles.storeOf(path);
    if (store == null) {
      return false;
    }
    checkPath(path);
    staged.add(store, new Commit.Item(path, localSpace.keep(localFile)));
    return true;
  }

  /** Deletes what this process sees of a path; whether there was anything. */
  public boolean delete(String path) {
    staged.drop(path);
    Segment seen = index.find(path);
    if (seen == null) {
      return false;
    }
    Tombstone tombstone = Tombstone.of(seen);
    index.applyUnwritten(tombstone);
    tombstones.add(tombstone);
    return true;
  }

  /** Deletes all below a directory; whether there was anything. */
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
    return unwrittenMs(path) < options.closedAfterMs();
  }

  private long unwrittenMs(String path) {
    Long lastMs = servedPartitions.get(partition(path));
    return lastMs == null ? Long.MAX_VALUE : Clocks.monotonicMs() - lastMs;
  }

  /** {@code <operator>/<partition>} of a path. */
  static String partition(String path) {
    int end = path.indexOf('/', path.indexOf('/') + 1);
    return end < 0 ? path : path.substring(0, end);
  }

  private void checkPath(String path) throws StateStoreFilesException {
    if (!PathRules.isValidPath(path)) {
      throw new StateStoreFilesException(
          Id.PSS_BAD_PATH, "'" + path + "' is no path below state/ of checkpoint " + checkpoint + ".");
    }
  }

  // ---- reading

  /** The live segment of a path, or null. */
  public Segment find(String path) {
    return index.find(path);
  }

  /** What lives where, for listings. */
  public Index index() {
    return index;
  }

  /** Whether plain state files may exist in this checkpoint, beside the merged ones (rule 10). */
  public boolean mayHavePlainFiles() {
    return !refresher.bornMerged();
  }

  /** Opens a segment, and fetches ahead what Spark will want after it. */
  public FSInputStream open(Segment segment) throws IOException {
    byte[] fetched = prefetcher.take(segment);
    if (fetched == null && segment.length() <= SegmentReader.WHOLE) {
      fetched = reader.read(segment);
    }
    if (fetched == null) {
      return new SegmentInputStream(reader, segment);
    }
    prefetcher.opened(segment, fetched);
    return new SegmentInputStream(segment, fetched);
  }

  /** Copies a whole segment to {@code out}, checked. */
  public void copy(Segment segment, OutputStream out) throws IOException {
    byte[] fetched = prefetcher.take(segment);
    if (fetched != null) {
      out.write(fetched);
    } else {
      reader.copy(segment, out);
    }
  }

  private Segment refreshAndFind(String path) throws IOException {
    refresher.refresh();
    return index.find(path);
  }

  /** Looks again: for a path that should be there but is not. */
  public Segment findAfterRefresh(String path) throws IOException {
    return refreshAndFind(path);
  }

  /** Says that no merged file has a logical file, and what may be the reason. */
  public StateFileNotFoundException missing(String path) {
    return MissingFile.of(this, path);
  }

  /** Makes sure of a view at least as new as the first call for this occasion. */
  public void refreshFor(Object occasion) throws IOException {
    refresher.refreshFor(occasion);
  }

  /** Refreshes now. */
  public void refresh() throws IOException {
    refresher.refresh();
  }

  /** Directories that this process has made or found; asked again after anything has gone. */
  public Set<String> knownDirectories() {
    return knownDirectories;
  }

  // ---- maintenance

  /** Called from Spark's maintenance threads: a view that is new enough, and cleaning where it is due. */
  public void maintain() throws IOException {
    lanes.all().forEach(Lane::sealIfDue);
    cleaner.runIfDue();
    refresher.refreshIfOlderThan(MAINTENANCE_VIEW_MS);
  }

  /** Cleans at once, and returns how many files went; for tests and tools. */
  public int clean() {
    lanes.all().forEach(Lane::sealIfDue);
    return cleaner.run();
  }

  /** What has to happen while nobody commits; called by the process's housekeeper. */
  void tick() {
    handles.closeIdle();
    prefetcher.dropStale();
    long nowMs = Clocks.monotonicMs();
    long keepMs = 2 * options.closedAfterMs() + KEEP_CLEANING_MS;
    servedPartitions.values().removeIf(lastMs -> nowMs - lastMs >= keepMs);
    staged.dropUnclaimed(options.closedAfterMs(), store -> OpenStores.isOpen(storage.stateDirectory(), store));
    if (tombstones.haveWaited(options.idleSealMs())) {
      lanes.forTombstones().writeTombstones();
    }
    // Spark's maintenance asks before it deletes, and comes back after a minute; what it has made garbage of is to go now.
    lanes.all().forEach(Lane::sealIfDue);
    // In a query without input Spark's maintenance asks for nothing, since it has nothing to delete. What has died is to
    // go all the same, until files of processes that died meanwhile count as closed, too.
    long idleMs = nowMs - servedPartitions.values().stream().mapToLong(Long::longValue).max().orElse(-keepMs);
    boolean idle = idleMs >= options.idleSealMs() && idleMs < keepMs && cleaner.hasMoreToDo();
    if (idle || cleaner.isPressing()) {
      threads.execute(cleaner::runIfDue);
    }
  }

  /** Seals all open files: a process that stops cleanly leaves nothing open (rule 7). */
  public void seal() {
    if (!tombstones.isEmpty()) {
      lanes.forTombstones().writeTombstones();
    }
    lanes.all().forEach(Lane::sealNow);
    handles.closeAll();
  }

  /** The checkpoint was deleted: nothing more is to be written to it. */
  void abandon() {
    lanes.all().forEach(Lane::abandon);
    handles.closeAll();
    staged.closeAll();
  }

  private void onGone(MergedFile file) {
    handles.close(file.name());
    // A lane that has it open notices by itself, in its own time.
    knownDirectories.clear();
  }

  // ---- what lanes need

  @Override
  public String checkpoint() {
    return checkpoint;
  }

  @Override
  public Options options() {
    return options;
  }

  /** Works with other options from now on, as when a query is restarted with them. */
  void options(Options changed) {
    if (!changed.equals(options)) {
      LOG.info("Options of {} are now {}", checkpoint, changed);
      options = changed;
    }
  }

  @Override
  public Storage storage() {
    return storage;
  }

  @Override
  public HybridClock clock() {
    return clock;
  }

  @Override
  public Company company() {
    return company;
  }

  @Override
  public LogMetrics metrics() {
    return metrics;
  }

  @Override
  public int expectedCompany() {
    long nowMs = Clocks.monotonicMs();
    long lately = servedPartitions.values().stream().filter(lastMs -> nowMs - lastMs < options.idleSealMs()).count();
    return (int) Math.min(taskSlots.getAsInt(), lately);
  }

  @Override
  public long refreshNumber() {
    return refresher.number();
  }

  @Override
  public long writerId() {
    return writerId;
  }

  @Override
  public String headerMeta() {
    return HeaderMeta.json(identity.get(), refresher.bornMerged());
  }

  @Override
  public String nextFileName(long nowMs) {
    return String.format("%013d-%016x-%d.merged", nowMs, writerId, nextFile.incrementAndGet());
  }

  @Override
  public long nowMs() {
    return Clocks.wallMs();
  }

  @Override
  public Clocks.Moment now() {
    return watch.now();
  }

  @Override
  public PendingTombstones tombstones() {
    return tombstones;
  }

  @Override
  public boolean cleansSoon() {
    return cleaner.comesSoon();
  }

  @Override
  public long fileSize() {
    // A file goes when all in it has died, or what lives has been moved. In small files that is soon, and little.
    double share = SHARE_OF_GARBAGE * (options.maxSpaceAmplification() - 1) * index.liveBytes();
    long least = tombstones.count() == 0 ? SMALL_FILE_BEFORE_DELETIONS : SMALL_FILE;
    return Math.min(options.maxFileSize(), Math.max(least, (long) share));
  }
}
