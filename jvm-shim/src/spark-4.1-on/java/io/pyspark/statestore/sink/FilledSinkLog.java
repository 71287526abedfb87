package io.pyspark.statestore.sink;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog;
import org.apache.spark.sql.execution.streaming.sinks.SinkFileStatus;
import scala.Option;

/**
 * The list of a query's file sink. With the first entry of a run it gets those, empty, that {@link ListHoles} finds
 * missing before. Spark 4.1 moved the classes.
 */
final class FilledSinkLog extends FileStreamSinkLog {
  private final ListHoles holes;

  /** The newest entry that this run has added; -1 before that. */
  private long newest = -1;

  /** Of a query, in the place of Spark's own. */
  FilledSinkLog(SparkSession session, String path, Option<Object> retention, ListHoles holes) {
    super(FileStreamSinkLog.VERSION(), session, path, retention);
    this.holes = holes;
  }

  @Override
  public boolean add(long batch, SinkFileStatus[] files) {
    holes.fillBefore(batch, metadataPath(), missing -> super.add(missing, new SinkFileStatus[0]));
    boolean isAdded = super.add(batch, files);
    newest = isAdded ? batch : newest;
    return isAdded;
  }

  /**
   * Spark lists the log before each batch, to leave out one that is there. Only this run adds entries, or another
   * driver of the same query: then this one finds the entry taken when it adds its own.
   */
  @Override
  public Option<Object> getLatestBatchId() {
    return newest < 0 ? super.getLatestBatchId() : Option.<Object>apply(newest);
  }
}
