package io.pyspark.statestore.write;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.index.HybridClock;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.index.Tombstone;
import io.pyspark.statestore.metrics.LogMetrics;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What this process writes into one checkpoint. A task commits by closing the stream that {@link #create} gave it: its
 * payload is queued in a {@link Lane}, together with what has to come with it. The lane writes all that wait as one
 * group and flushes once ({@link OpenFile#commit}). Then the task goes on. No metadata call was made.
 */
public final class Commits implements LogOutputStream.Target {
  private static final Logger LOG = LoggerFactory.getLogger(Commits.class);

  /** A file may be as large as this share of the dead bytes that are allowed, because several are open at a time. */
  private static final double SHARE_OF_GARBAGE = 0.25;

  /** No file is sealed before it has so many bytes, however little lives: each costs some calls. */
  private static final long SMALL_FILE = 2 << 20;

  /** As long as nothing has died, small files gain nothing. */
  private static final long SMALL_FILE_BEFORE_DELETIONS = 8 << 20;

  private final String checkpoint;
  private final Index index;
  private final Supplier<Options> options;
  private final HybridClock clock;
  private final LogMetrics metrics;
  private final TaskEnd taskEnd;
  private final LocalSpace localSpace;
  private final Around around;
  private final OpenFile.Factory files;
  private final ServedPartitions served = new ServedPartitions();
  private final PendingTombstones tombstones = new PendingTombstones();
  private final CommitWindow window;
  private final LanePool lanes;
  private final BatchCommits batches;
  private final AtomicBoolean warnedOfNoBatch = new AtomicBoolean();
  private final AtomicBoolean warnedOfOtherBatch = new AtomicBoolean();

  /** What other rooms say of a commit, and hear of it. */
  public interface Around {
    /** Whether a driver hears what this process owes to a batch. */
    boolean hasDriver();

    /** Whether the tombstones that wait are left to a cleaning pass that is near. */
    boolean holdsDeletionsBack();

    /** Bytes of all live segments of the checkpoint. */
    long liveBytes();

    /** So many bytes have become durable. */
    void written(long bytes);

    /** What logical files go together. */
    Companions companions();
  }

  /** Says what goes with a logical file. */
  public interface Companions {
    /** What has to become durable in the group of a file. */
    Company of(String path, Payload payload) throws IOException;
  }

  /** What goes with a logical file. */
  public interface Company {
    /** Of a file that goes alone. */
    Company NONE =
        new Company() {
          @Override
          public List<Commit.Item> items() {
            return List.of();
          }

          @Override
          public void ended(Outcome outcome) {}
        };

    List<Commit.Item> items();

    /** What has become of the file and of all that goes with it, which is the same. */
    void ended(Outcome outcome);
  }

  /** What has become of a commit. */
  public enum Outcome {
    DURABLE,
    /** It failed, and nobody knows whether it is in the checkpoint. */
    UNKNOWN,
    /** Nothing of it is in the checkpoint. */
    NOT_WRITTEN
  }

  /**
   * @param process in which the tasks run
   * @param refreshNumber number of the newest refresh that has begun
   * @param reporter hears of each group before its commits are acknowledged; null where nobody listens
   * @param driver hears what this process owes to batches; null where this is the driver's own process
   * @param threads write the groups of commits that wait
   */
  public Commits(
      Storage storage,
      Index index,
      Rules rules,
      HybridClock clock,
      LogMetrics metrics,
      WriterIdentity writer,
      ProcessFacts process,
      LongSupplier refreshNumber,
      Reporter reporter,
      BatchCommits.Driver driver,
      Around around,
      Executor threads) {
    this.checkpoint = storage.checkpoint();
    this.index = index;
    this.options = rules::options;
    this.clock = clock;
    this.metrics = metrics;
    this.localSpace = new LocalSpace(process.localDirectory());
    this.taskEnd = process.taskEnd();
    this.around = around;
    files =
        new OpenFile.Factory(
            storage, index, rules, clock, writer, refreshNumber, reporter == null ? Reporter.NONE : reporter);
    IntSupplier taskSlots = process.taskSlots();
    window = new CommitWindow(options, () -> expectedPartitions(taskSlots), metrics::recentWriteNanos);
    lanes =
        new LanePool(
            () -> new Lane(files, window, tombstones, metrics, around::holdsDeletionsBack, this::fileSize, threads),
            () -> options.get().maxOpenFiles());
    batches =
        new BatchCommits(
            driver == null ? BatchCommits.here(storage.stateDirectory().toString(), writer.id()) : driver,
            this::writeBatch,
            threads,
            checkpoint);
  }

  // ---- logical files

  /**
   * Starts a logical file of a run of the query. It becomes visible when the stream is closed. Where options say so, a
   * change of a batch becomes durable at the end of the batch, and the task does not wait for that.
   */
  public LogOutputStream create(String path, String queryRunId) throws IOException {
    if (!isLate(path)) {
      served.written(path);
    }
    BatchCommits.Batch batch = batch(path, queryRunId);
    LogOutputStream stream = new LogOutputStream(this, path, newBuffer(), batch);
    if (batch == null) {
      window.opened(stream, path);
    } else {
      taskEnd.ifFails(stream::taskFailed);
    }
    return stream;
  }

  /**
   * Whether a file is a snapshot that is uploaded some time after its version was committed, so that it does not show
   * that the partition is still this process's. Where Spark writes checksum files it has threads for that which tell
   * nothing of who waits for them; but a version that has a changelog was committed with that.
   */
  public boolean isLate(String path) {
    String changelog = LogicalPaths.changelogOfZip(path);
    return changelog != null && (Threads.isMaintenance() || index.find(changelog) != null);
  }

  /** The batch at whose end a logical file becomes durable; null where that is when it is closed. */
  private BatchCommits.Batch batch(String path, String queryRunId) throws IOException {
    boolean mayWait =
        options.get().groupCommitOfBatch()
            && !queryRunId.isEmpty()
            && around.hasDriver()
            && !LogicalPaths.isOfSnapshot(path);
    long said = mayWait ? taskEnd.batch() : -1;
    long number = said < 0 ? -1 : LogicalPaths.batchOfChange(path);
    if (said >= 0 && said != number) {
      if (!warnedOfOtherBatch.getAndSet(true)) {
        LOG.warn(
            "groupCommit.scope=batch has no effect for {}: the job that makes {} runs in a thread that has batch {} in"
                + " its local properties, as threads of a pool have that were made in an earlier batch, or for another"
                + " query. Each commit of such a job is durable before its task ends. What to do: run such jobs in"
                + " threads that the batch makes, or leave groupCommit.scope out",
            checkpoint,
            path,
            said);
      }
      return null;
    }
    if (number < 0) {
      if (mayWait && !Threads.isMaintenance() && !warnedOfNoBatch.getAndSet(true)) {
        LOG.warn(
            "groupCommit.scope=batch has no effect for {}: {} was made outside of a task. Spark does that where it"
                + " writes checksum files, and each commit is durable before its task ends. What to do: set"
                + " spark.sql.streaming.checkpoint.fileChecksum.enabled=false, or leave groupCommit.scope out",
            checkpoint,
            path);
      }
      return null;
    }
    BatchCommits.Batch batch = batches.batch(queryRunId, number);
    return taskEnd.waitsFor(batch::awaitOwed) ? batch : null;
  }

  public PayloadBuffer newBuffer() {
    return new PayloadBuffer(localSpace);
  }

  @Override
  public void left(LogOutputStream stream) {
    window.left(stream);
  }

  @Override
  public void cancelled() {
    metrics.uploadCancelled();
  }

  @Override
  public void commit(LogOutputStream stream, String path, Payload payload, long openedBy, UploadWatch watch)
      throws IOException {
    Company company = around.companions().of(path, payload);
    Commit commit = null;
    boolean done = false;
    try {
      List<Commit.Item> items = new ArrayList<>(company.items());
      items.add(new Commit.Item(path, payload));
      commit = new Commit(items, List.of(), openedBy, watch);
      Lane lane = lanes.choose(commit);
      boolean lead = lane.submit(commit);
      window.left(stream);
      if (lead) {
        lane.lead(commit);
      }
      commit.await();
      awaitReport(path, lane, commit);
      done = true;
      around.written(commit.length());
    } finally {
      boolean mayBeDurable = commit != null && commit.mayBeDurable();
      company.ended(done ? Outcome.DURABLE : mayBeDurable ? Outcome.UNKNOWN : Outcome.NOT_WRITTEN);
    }
  }

  /**
   * Waits for the report of a commit. Spark counts on what a task has committed once the task has ended, so a task goes
   * on meanwhile, and its end waits. A snapshot's files are named by later snapshots as soon as they are written.
   */
  private void awaitReport(String path, Lane lane, Commit commit) throws IOException {
    if (!commit.report().isUnderWay()
        || LogicalPaths.isOfSnapshot(path)
        || !taskEnd.waitsFor(() -> lane.awaitReport(commit))) {
      lane.awaitReport(commit);
    }
  }

  /** Keeps a file for the end of its batch. Its stamp says when it was written. */
  @Override
  public Commit keep(String path, Payload payload, long openedBy, BatchCommits.Batch batch) throws IOException {
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
      around.written(commit.length());
    }
  }

  // ---- deletions

  /** Deletes what is seen of a path; returns whether there was anything. */
  public boolean delete(String path) {
    Tombstone tombstone = index.delete(path);
    if (tombstone == null) {
      return false;
    }
    tombstones.add(tombstone);
    return true;
  }

  /** Deletes what lives at the path of a segment that this process wrote, if it is that one; returns whether it was. */
  public boolean deleteIfSame(String path, long stamp, long writer) {
    synchronized (index) {
      Segment live = index.find(path);
      return live != null && live.compareKeyTo(stamp, writer) == 0 && delete(path);
    }
  }

  /** The deletions that wait for a group. */
  public PendingTombstones tombstones() {
    return tombstones;
  }

  /** Writes the tombstones that wait, where the oldest has waited for as long as an idle file. */
  public void writeTombstonesIfDue() {
    if (tombstones.haveWaited(options.get().idleSealMs())) {
      lanes.forTombstones().writeTombstones();
    }
  }

  // ---- what cleaning writes

  /** Writes these tombstones and all that wait, and returns when they are durable. */
  public void writeTombstones(List<Tombstone> needed) throws IOException {
    write(lanes.forTombstones(), new Commit(List.of(), needed, -1));
  }

  /** Writes copies of segments, and returns when they are durable. */
  public void writeRelocated(List<Commit.Item> items) throws IOException {
    write(lanes.forRelocations(), new Commit(items, List.of(), -1));
  }

  private static void write(Lane lane, Commit commit) throws IOException {
    if (lane.submit(commit)) {
      lane.lead(commit);
    }
    commit.await();
  }

  /** A lane for which no commit of Spark's waits; null where so few files may be open that there is none. */
  public Lane laneForEarlyUploads() {
    return lanes.forEarlyUploads();
  }

  public LocalSpace localSpace() {
    return localSpace;
  }

  // ---- partitions

  /** The partitions that this process has written to lately. */
  public ServedPartitions served() {
    return served;
  }

  /** Whether this process has written to a path's partition lately, and so probably will again. */
  public boolean serves(String path) {
    return served.unwrittenMs(path) < options.get().closedAfterMs();
  }

  private int expectedPartitions(IntSupplier taskSlots) {
    return (int) Math.min(taskSlots.getAsInt(), served.writtenWithin(options.get().idleSealMs()));
  }

  // ---- files

  /** Makes the files that this process writes. */
  public OpenFile.Factory files() {
    return files;
  }

  /** Bytes after which an open file is sealed. Small files soon hold nothing live, or little that has to be moved. */
  private long fileSize() {
    double share = SHARE_OF_GARBAGE * (options.get().maxSpaceAmplification() - 1) * around.liveBytes();
    long least = tombstones.count() == 0 ? SMALL_FILE_BEFORE_DELETIONS : SMALL_FILE;
    return Math.min(options.get().maxFileSize(), Math.max(least, (long) share));
  }

  /** Seals the files that are full, or were left alone for long. */
  public void sealDue() {
    lanes.all().forEach(Lane::sealIfDue);
  }

  /** Seals all open files: a process that stops cleanly leaves nothing open (rule 7). */
  public void sealAll() {
    if (!tombstones.isEmpty()) {
      lanes.forTombstones().writeTombstones();
    }
    lanes.all().forEach(Lane::sealNow);
  }

  /** Whether nothing waits to be written, and no file is open. */
  public boolean isIdle() {
    return tombstones.isEmpty() && lanes.all().stream().noneMatch(Lane::isOpen) && batches.isEmpty();
  }

  /** How many commits wait for their group. */
  public int waiting() {
    return lanes.all().stream().mapToInt(Lane::waiting).sum();
  }

  /** Stops writing: the checkpoint was deleted. */
  public void abandon() {
    batches.close();
    lanes.all().forEach(Lane::abandon);
  }
}
