package io.pyspark.statestore.sink;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.SinkOptions;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.sink.Bins.Bin;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol.TaskCommitMessage;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;
import scala.collection.JavaConverters;

/**
 * Writes a batch of Spark's file sink without small files. Tasks write to a staging directory, where no reader looks:
 *
 * <pre>
 * sink/_spark_metadata/7                    Spark's list of the files of batch 7: what readers go by
 * sink/p=1/part-00000-….parquet             published
 * sink/_staging/7-&lt;random&gt;/p=1/part-…       what the tasks of an attempt at batch 7 write
 * sink/_staging/7-&lt;random&gt;/_joined/p=1/…    what was made of that, where files are renamed cheaply
 * </pre>
 *
 * <p>When all tasks are done, {@link Compaction} makes few files of many, these get their names, and then Spark adds
 * them to its list: that atomic addition is still what commits the batch. Whatever dies before leaves files that no
 * list names. The staging directory goes when its batch ends, or, if nobody was left to do that, after
 * {@code stagingRetention}.
 *
 * <p>What differs between Spark's versions is in the class that extends this one.
 */
abstract class StagedCommitProtocol extends ManifestFileCommitProtocol {
  private static final Logger LOG = LoggerFactory.getLogger(StagedCommitProtocol.class);

  private final String sink;
  private final String batch;
  private final String staging;
  // In the driver only, from here on.
  private transient RunningSink running;
  private transient SinkOptions options;
  private transient Staging directory;
  /** Files of this attempt in their final places, as long as no list may name them. */
  private transient List<Path> placed;
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
    } catch (IOException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
  }

  /**
   * Makes few files of those that the tasks have staged, and gives them their final names.
   *
   * @return what Spark's class is to commit
   */
  final scala.collection.immutable.List<TaskCommitMessage> publish(
      JobContext job, Iterator<TaskCommitMessage> tasks) {
    List<FileStatus> staged = new ArrayList<>();
    while (tasks.hasNext()) {
      for (Iterator<?> files = ((scala.collection.Iterable<?>) tasks.next().obj()).iterator(); files.hasNext();) {
        staged.add(SinkFiles.status(files.next()));
      }
    }
    List<FileStatus> published;
    try {
      published = publish(job, staged);
    } catch (IOException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
    // The list may name the files from now on, so they stay whatever comes.
    placed = List.of();
    return seq(List.of(new TaskCommitMessage(seq(SinkFiles.listed(published)))));
  }

  private List<FileStatus> publish(JobContext job, List<FileStatus> staged) throws IOException {
    long begin = System.nanoTime();
    placed = new ArrayList<>();
    try {
      List<Bin> bins = Bins.of(directory.path(), staged, options.targetFileSize());
      Compaction compaction = new Compaction(running.written(), job.getConfiguration());
      List<FileStatus> published = directory.place(bins, compaction, placed);
      done = new SinkMetrics.Batch(sink, batch, staged.size(), Bins.bytes(staged), published.size(),
          Bins.bytes(published), System.nanoTime() - begin);
      return published;
    } catch (StateStoreFilesException e) {
      throw e;
    } catch (Exception e) {
      // Spark's own exception for a job that failed is none of those that Java knows to be thrown here.
      if (running.isStopping()) {
        throw asItIs(e);
      }
      throw new StateStoreFilesException(
          Id.PSS_SINK_COMPACTION_FAILED, "The files of batch " + batch + " of " + sink + " could not be compacted: "
              + e.getMessage() + ". Nothing of the batch was published. Restart the query; to publish files as stock"
              + " Spark does, unset spark.sql.streaming.commitProtocolClass.", e);
    }
  }

  @SuppressWarnings("unchecked")
  private static <E extends Exception> E asItIs(Exception e) throws E {
    throw (E) e;
  }

  /** A sequence in any Scala: 2.12 has no other converter, and 2.13 would rather not have this one. */
  @SuppressWarnings("deprecation")
  static <T> scala.collection.immutable.List<T> seq(List<T> list) {
    return JavaConverters.asScalaBuffer(list).toList();
  }

  /** The batch is committed. What fails from now on must not look as if the batch had. */
  final void committed() {
    SinkMetrics.committed(done);
    clean(List.of());
    try {
      directory.sweepIfDue(options.stagingRetentionMs());
    } catch (IOException | RuntimeException e) {
      LOG.warn("The staging directory of {} could not be looked through for what others have left", sink, e);
    }
  }

  @Override
  public void abortJob(JobContext job) {
    if (directory != null) {
      clean(placed == null ? List.of() : placed);
    }
    super.abortJob(job);
  }

  /** Deletes the staging directory, and files that came to their final places in vain. */
  private void clean(List<Path> inVain) {
    try {
      directory.delete(inVain);
    } catch (IOException | RuntimeException e) {
      LOG.warn("{} could not be deleted; it goes after the retention", staging, e);
    }
  }
}
