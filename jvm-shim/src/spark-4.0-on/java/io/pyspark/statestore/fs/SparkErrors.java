package io.pyspark.statestore.fs;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.errors.QueryExecutionErrors;

/** Spark's errors of state files that are missing. */
final class SparkErrors {
  private SparkErrors() {}

  static Throwable noChangelog(Path path, Throwable cause) {
    return QueryExecutionErrors.failedToReadStreamingStateFileError(path, cause);
  }

  static Throwable noDelta(Path path, Throwable cause) {
    return QueryExecutionErrors.failedToReadDeltaFileNotExistsError(path, "a state store", cause);
  }
}
