package io.pyspark.statestore.fs;

import java.io.File;
import org.apache.spark.SparkConf;
import org.apache.spark.util.Utils;

/** Makes local directories where Spark's RocksDB has its own. */
final class LocalDirectory {
  private LocalDirectory() {}

  /** Spark deletes it with the application. */
  static File make(SparkConf conf, String name) {
    return Utils.createExecutorLocalTempDir(conf, name);
  }
}
