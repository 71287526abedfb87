package io.pyspark.statestore.fs;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import io.pyspark.statestore.ShimInfo;
import org.apache.spark.SparkEnv;
import org.apache.spark.util.Utils;

/** Who this process is in Spark, and where it may put local files. */
final class ProcessIdentity {
  private ProcessIdentity() {}

  /** What the headers of merged files say of their writer. */
  static Map<String, String> headerFields(String queryRunId) {
    Map<String, String> fields = new LinkedHashMap<>();
    SparkEnv env = SparkEnv.get();
    fields.put("app_id", env == null ? "" : env.conf().get("spark.app.id", ""));
    fields.put("executor_id", env == null ? "" : env.executorId());
    fields.put("query_run_id", queryRunId);
    fields.put("shim", ShimInfo.version());
    return fields;
  }

  /** A new directory that goes with the application; on the disk of the local RocksDB, so that SSTs can be linked. */
  static Path localDirectory() {
    SparkEnv env = SparkEnv.get();
    try {
      return env == null
          ? Files.createTempDirectory("merged-log")
          : Utils.createExecutorLocalTempDir(env.conf(), "merged-log").toPath();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
