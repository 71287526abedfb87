package io.pyspark.statestore.sink;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.FileStreamSinkLog;
import org.apache.spark.sql.execution.streaming.SinkFileStatus;
import scala.Option;

/**
 * The list of a query's file sink. With the first entry of a run it gets those, empty, that {@link ListHoles} finds
 * missing before. Spark 4.1 moved the classes.
 */
final class FilledSinkLog extends FileStreamSinkLog {
  private final ListHoles holes;

  /** Of a query, in the place of Spark's own. */
  FilledSinkLog(SparkSession session, String path, Option<Object> retention, ListHoles holes) {
    super(FileStreamSinkLog.VERSION(), session, path, retention);
    this.holes = holes;
  }

  @Override
  public boolean add(long batch, SinkFileStatus[] files) {
    holes.fillBefore(batch, metadataPath(), missing -> super.add(missing, new SinkFileStatus[0]));
    return super.add(batch, files);
  }
}
