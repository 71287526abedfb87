package io.pyspark.statestore.sink;

import io.pyspark.statestore.Unchecked;
import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.FileStreamSinkLog;
import org.apache.spark.sql.execution.streaming.SinkFileStatus;
import scala.Option;

/**
 * The list of a query's file sink. With the first entry of a run it gets those, empty, that {@link ListHoles} finds
 * missing before.
 */
final class FilledSinkLog extends FileStreamSinkLog {
  private final ListHoles holes;
  private boolean isFilled;

  /** Of a query, in the place of Spark's own. */
  FilledSinkLog(SparkSession session, String path, Option<Object> retention, ListHoles holes) {
    super(FileStreamSinkLog.VERSION(), session, path, retention);
    this.holes = holes;
  }

  @Override
  public boolean add(long batch, SinkFileStatus[] files) {
    if (!isFilled) {
      try {
        List<Long> missing = holes.before(batch, metadataPath());
        for (long each : missing) {
          // If it is there by now, another driver of the same query has added the same.
          super.add(each, new SinkFileStatus[0]);
        }
        holes.filled(missing);
      } catch (IOException e) {
        throw Unchecked.raise(e);
      }
      isFilled = true;
    }
    return super.add(batch, files);
  }
}
