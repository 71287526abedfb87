package io.pyspark.statestore.sink;

import static java.util.stream.Collectors.toSet;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.SinkOptions;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.sink.Bins.Bin;
import io.pyspark.statestore.sink.Bins.Kind;
import io.pyspark.statestore.sink.Placement.Placed;
import io.pyspark.statestore.sink.Waiting.Rows;
import io.pyspark.statestore.sink.join.Compaction;
import io.pyspark.statestore.sink.join.ScalaList;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol.TaskCommitMessage;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;

/**
 * Writes a batch of Spark's file sink without small files. Tasks write to a staging directory, where no reader looks:
 *
 * <pre>
 * sink/p=1/part-00000-….parquet                             published
 * sink/_spark_metadata/7                                    Spark's list of the files of batch 7: readers go by it
 * sink/_spark_metadata/_staging/7-&lt;random&gt;/p=1/part-…       what the tasks of an attempt at batch 7 write
 * sink/_spark_metadata/_staging/7-&lt;random&gt;/_joined/p=1/…    what was made of that, where a rename is cheap
 * sink/_spark_metadata/_staging/7-&lt;random&gt;/_at_work         written by an attempt that takes long: {@link AtWork}
 * sink/_spark_metadata/_waiting/p=1/part-00000-….parquet    rows that wait, where users allow it: {@link Waiting}
 * </pre>
 *
 * <p>When all tasks are done, {@link Compaction} makes few files of many, these get their names, and then Spark adds
 * them to its list: that atomic addition is still what commits the batch. Whatever dies before leaves files that no
 * list names. The staging directory goes when its batch ends, or, if nobody was left to do that, after a day.
 *
 * <p>What differs between Spark's versions is in the class that extends this one.
 */
abstract class StagedCommitProtocol extends ManifestFileCommitProtocol {
  private static final long serialVersionUID = 1L;

  private static final Logger LOG = LoggerFactory.getLogger(StagedCommitProtocol.class);

  /** What was said already, by sink. */
  private static final Set<String> SAID = ConcurrentHashMap.newKeySet();

  private static final int MOST_SAID = 1000;

  private final String sink;
  private final String batch;
  private final String staging;
  // In the driver only, from here on.
  private transient RunningSink running;
  private transient SinkOptions options;
  private transient Staging directory;
  private transient AtWork atWork;

  /** Files of this attempt in their final places, as long as no list may name them. */
  private transient List<Path> placed;

  private transient Waiting before;
  private transient Waiting waiting;
  private transient SinkMetrics.Batch done;

  StagedCommitProtocol(String batch, String sink) {
    this(batch, sink, Staging.newDirectory(sink, batch));
  }

  private StagedCommitProtocol(String batch, String sink, String staging) {
    // Spark's own class writes to where it is told that the sink is.
    super(batch, staging);
    ShimInfo.checkSpark();
    SinkScala.check();
    this.batch = batch;
    this.sink = sink;
    this.staging = staging;
  }

  @Override
  public void setupJob(JobContext job) {
    super.setupJob(job);
    try {
      // Before any task begins: what the user has to mend is said at once.
      running = RunningSink.ofThisThread();
      options = SinkOptions.from(job.getConfiguration(), running.written().optionsAsMap());
      directory = new Staging(sink, staging, job.getConfiguration());
      directory.begin();
      atWork = AtWork.begin(directory.fileSystem(), directory.path(), this);
    } catch (IOException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
  }

  /**
   * Makes few files of those that the tasks have staged, and gives them their final names.
   *
   * @return what Spark's class is to commit
   */
  final scala.collection.immutable.List<TaskCommitMessage> publish(JobContext job, Iterator<TaskCommitMessage> tasks) {
    List<FileStatus> staged = new ArrayList<>();
    while (tasks.hasNext()) {
      for (Iterator<?> files = ((scala.collection.Iterable<?>) tasks.next().obj()).iterator(); files.hasNext(); ) {
        staged.add(SinkFiles.status(files.next()));
      }
    }
    List<FileStatus> listed;
    try {
      listed = publish(job, staged);
    } catch (IOException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
    // The list may name the files from now on, so they stay whatever comes.
    placed = List.of();
    return ScalaList.of(List.of(new TaskCommitMessage(ScalaList.of(SinkFiles.listed(listed)))));
  }

  private List<FileStatus> publish(JobContext job, List<FileStatus> staged) throws IOException {
    long begin = System.nanoTime();
    placed = new ArrayList<>();
    try {
      before = Waiting.before(directory.fileSystem(), directory.sink(), Long.parseLong(batch));
      Compaction compaction = new Compaction(running.written(), job.getConfiguration());
      List<Bin> bins = bins(staged, compaction.whyNot() == null);
      Placement placement = new Placement(directory, compaction, placed);
      Placed files = placement.place(bins);
      sayWhatWasLeft(compaction.whyNot(), files);
      List<FileStatus> listed = new ArrayList<>(files.published());
      waiting = stillWaiting(bins, files.waiting());
      if (!before.isEmpty() || !waiting.isEmpty()) {
        listed.add(waiting.listed());
      }
      if (atWork.wasSilent()) {
        placement.requireThere(listed);
      }
      before.checkStillCounts(directory.fileSystem(), directory.sink());
      done =
          new SinkMetrics.Batch(
              sink,
              batch,
              staged.size(),
              Bins.bytes(staged),
              files.published().size(),
              Bins.bytes(files.published()),
              waiting.rows().size(),
              waiting.bytes(),
              System.nanoTime() - begin);
      return listed;
    } catch (StateStoreFilesException e) {
      throw e;
    } catch (Exception e) {
      // Spark's own exception for a job that failed is none of those that Java knows to be thrown here.
      if (running.isStopping()) {
        throw asItIs(e);
      }
      throw new StateStoreFilesException(
          Id.PSS_SINK_COMPACTION_FAILED,
          "The files of batch "
              + batch
              + " of "
              + sink
              + " could not be compacted: "
              + e.getMessage()
              + ". Nothing of the batch was published. Restart the query; to publish files as stock"
              + " Spark does, unset spark.sql.streaming.commitProtocolClass.",
          e);
    }
  }

  /** What waits goes with what was staged, or, where it has another form, by itself and at once. */
  private List<Bin> bins(List<FileStatus> staged, boolean canJoin) {
    long now = System.currentTimeMillis();
    Map<Kind, List<FileStatus>> byKind = new LinkedHashMap<>();
    Set<String> due = new HashSet<>();
    List<Bin> bins = new ArrayList<>();
    boolean fits = canJoin && before.hasForm(running.written().form());
    for (Rows rows : before.rows()) {
      FileStatus file = rows.status(directory.sink());
      if (!fits) {
        bins.add(new Bin(rows.directory(), List.of(file), false));
        continue;
      }
      Bins.addTo(byKind, rows.directory(), file);
      if (!rows.mayGoOn() || rows.isDue(now, options.maxDelayMs())) {
        due.add(rows.directory());
      }
    }
    Bins.addTo(byKind, directory.path(), staged);
    boolean mayWait = canJoin && options.maxDelayMs() > 0;
    bins.addAll(Bins.of(byKind, options.targetFileSize(), value -> mayWait && !due.contains(value)));
    return bins;
  }

  /** Says once of each sink why files are published that were not joined. */
  private void sayWhatWasLeft(String whyNot, Placed files) {
    List<String> reasons = new ArrayList<>(whyNot == null ? List.of() : List.of(whyNot));
    files.joined().values().forEach(joined -> joined.left().forEach(left -> reasons.add(left.why())));
    for (String reason : reasons) {
      if (SAID.size() < MOST_SAID && SAID.add(sink + " " + reason)) {
        LOG.info("[sink={}] Files are published as they are, since {}. Nothing is lost.", sink, reason);
      }
    }
  }

  private Waiting stillWaiting(List<Bin> bins, List<FileStatus> added) throws IOException {
    long now = System.currentTimeMillis();
    Set<Path> waits =
        bins.stream().filter(Bin::waits).flatMap(b -> b.files().stream()).map(FileStatus::getPath).collect(toSet());
    List<Rows> rows = new ArrayList<>(before.rows());
    rows.removeIf(r -> !waits.contains(r.status(directory.sink()).getPath()));
    Path root = new Path(directory.sink(), SinkPlaces.WAITING);
    for (FileStatus file : added) {
      rows.add(new Rows(SinkPlaces.WAITING, SinkPaths.below(root, file.getPath()), file.getLen(), now));
    }
    if (before.isEmpty() && rows.isEmpty()) {
      return before.after(Long.parseLong(batch));
    }
    Waiting after =
        Waiting.write(directory.fileSystem(), directory.sink(), Long.parseLong(batch), running.written().form(), rows);
    placed.add(after.listed().getPath());
    return after;
  }

  @SuppressWarnings("unchecked")
  private static <E extends Exception> E asItIs(Exception e) throws E {
    throw (E) e;
  }

  /** The batch is committed. What fails from now on must not look as if the batch had. */
  final void committed() {
    SinkMetrics.committed(done);
    waiting.committed(directory.sink());
    clean(waiting.goneSince(before, directory.sink()));
    try {
      directory.sweepIfDue(waiting);
    } catch (IOException | RuntimeException e) {
      // It needs nobody: the next hour looks again, and Sink.remove_orphan_files does.
      LOG.info("[sink={}] What failed attempts have left could not be looked for: {}", sink, e.toString());
    }
  }

  @Override
  public void abortJob(JobContext job) {
    if (directory != null) {
      clean(placed == null ? List.of() : placed);
    }
    super.abortJob(job);
  }

  /** Deletes the staging directory, and files that came to their places in vain or do not wait any more. */
  private void clean(List<Path> files) {
    atWork.end();
    try {
      directory.delete(files);
    } catch (IOException | RuntimeException e) {
      LOG.info("{} or files that are not needed could not be deleted; they go after a day: {}", staging, e.toString());
    }
  }
}
