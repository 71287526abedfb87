package io.pyspark.statestore.testing;

import org.apache.spark.SparkEnv;
import org.apache.spark.sql.api.java.UDF1;

/** What the test file systems have counted in one process, for tests that ask an executor through SQL. */
public final class ProcessCounts implements UDF1<Long, String> {
  private static final long serialVersionUID = 1L;

  /** For {@code SELECT reflect('…ProcessCounts', 'counts')}: {@code <executor id> <process id> <counts as JSON>}. */
  public static String counts() {
    SparkEnv env = SparkEnv.get();
    return (env == null ? "" : env.executorId()) + " " + ProcessHandle.current().pid() + " " + Counters.snapshotJson();
  }

  /** A function that takes so many milliseconds, so that other executors get tasks, too. */
  @Override
  public String call(Long millis) throws InterruptedException {
    Thread.sleep(millis);
    return "{\"pid\": " + ProcessHandle.current().pid() + ", \"counts\": " + Counters.snapshotJson() + "}";
  }
}
