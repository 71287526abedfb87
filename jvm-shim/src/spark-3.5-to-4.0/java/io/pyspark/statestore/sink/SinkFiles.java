package io.pyspark.statestore.sink;

import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.execution.streaming.SinkFileStatus;

/** Files as the list of a sink names them. Spark 4.1 moved the class of these. */
final class SinkFiles {
  private SinkFiles() {}

  static FileStatus status(Object listed) {
    return ((SinkFileStatus) listed).toFileStatus();
  }

  static List<SinkFileStatus> listed(List<FileStatus> files) {
    return files.stream().map(SinkFileStatus::apply).toList();
  }
}
