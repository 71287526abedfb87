package io.pyspark.statestore.fs;

import org.apache.hadoop.fs.Path;

/** Spark's errors of state files that are missing: Spark 3.5 has none that names its cause. */
final class SparkErrors {
  private SparkErrors() {}

  static Throwable noChangelog(Path path, Throwable cause) {
    return cause;
  }

  static Throwable noDelta(Path path, Throwable cause) {
    return cause;
  }
}
