package io.pyspark.statestore.fs;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.log.MergedLog;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;

/** What Spark says of this process: its ids, its number of task slots, and where it may put local files. */
final class ProcessIdentity {
  /** {@code local}, {@code local[2]}, {@code local[*]}, {@code local[2,4]}; not {@code local-cluster[…]}. */
  private static final Pattern LOCAL = Pattern.compile("local(?:\\[([0-9*]+)(?:,.*)?\\])?");

  /** The local property that Spark sets for the jobs of a batch, {@code MicroBatchExecution.BATCH_ID_KEY}. */
  private static final String BATCH_ID = "streaming.sql.batchId";

  /** The local property that Spark sets for the jobs of a query, {@code StreamExecution.QUERY_ID_KEY}. */
  private static final String QUERY_ID = "sql.streaming.queryId";

  /** The local property of a job's group. A query's is the id of its run, by which it cancels its jobs. */
  private static final String JOB_GROUP = "spark.jobGroup.id";

  private static final Pattern UUID = Pattern.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");

  private ProcessIdentity() {}

  /**
   * The configuration of a store, with the id of the query's run. Spark puts it there from 4.0 on; for 3.5 the current
   * task says it, which makes the store.
   */
  static Configuration withRun(Configuration conf) {
    TaskContext task = TaskContext.get();
    if (task == null || conf.get(MergedFileSystem.RUN_ID) != null || task.getLocalProperty(QUERY_ID) == null) {
      return conf;
    }
    String group = task.getLocalProperty(JOB_GROUP);
    if (group == null || !UUID.matcher(group).matches()) {
      return conf;
    }
    Configuration copy = new Configuration(conf);
    copy.set(MergedFileSystem.RUN_ID, group);
    return copy;
  }

  /** This process, for the log of a checkpoint. */
  static MergedLog.ProcessFacts facts(String queryRunId, Configuration conf) {
    String interval = conf.get("spark.sql.streaming.stateStore.maintenanceInterval", "60s");
    return new MergedLog.ProcessFacts(
        () -> headerFields(queryRunId), ProcessIdentity::localDirectory, ProcessIdentity::taskSlots,
        JavaUtils.timeStringAsMs(interval), TASK);
  }

  private static final MergedLog.TaskEnd TASK = new MergedLog.TaskEnd() {
    @Override
    public boolean waitsFor(Wait last) {
      TaskContext task = TaskContext.get();
      if (task == null || task.isCompleted()) {
        return false;
      }
      task.addTaskCompletionListener((TaskCompletionListener) ended -> {
        try {
          last.await();
        } catch (IOException e) {
          throw new UncheckedIOException(e.getMessage(), e);
        }
      });
      return true;
    }

    @Override
    public long batch() {
      TaskContext task = TaskContext.get();
      String batch = task == null ? null : task.getLocalProperty(BATCH_ID);
      return batch == null ? -1 : Long.parseLong(batch);
    }

    @Override
    public void ifFails(Runnable action) {
      TaskContext.get().addTaskFailureListener((TaskFailureListener) (task, error) -> action.run());
    }
  };

  /** The fields of a merged file's header that describe its writer. */
  static Map<String, String> headerFields(String queryRunId) {
    Map<String, String> fields = new LinkedHashMap<>();
    SparkEnv env = SparkEnv.get();
    fields.put("app_id", env == null ? "" : env.conf().get("spark.app.id", ""));
    fields.put("executor_id", env == null ? "" : env.executorId());
    fields.put("query_run_id", queryRunId);
    fields.put("shim", ShimInfo.version());
    return fields;
  }

  /** Whether tasks run in the driver's process. */
  static boolean isLocal(SparkConf conf) {
    return LOCAL.matcher(conf.get("spark.master", "")).matches();
  }

  /** The most tasks that run at the same time in this process. */
  static int taskSlots() {
    SparkEnv env = SparkEnv.get();
    if (env == null) {
      return 1;
    }
    Matcher local = LOCAL.matcher(env.conf().get("spark.master", ""));
    String cores = local.matches() ? local.group(1) : env.conf().get("spark.executor.cores", "*");
    int slots = cores == null ? 1 : cores.equals("*") ? Runtime.getRuntime().availableProcessors() : parse(cores);
    return Math.max(1, slots / Math.max(1, parse(env.conf().get("spark.task.cpus", "1"))));
  }

  private static int parse(String number) {
    try {
      return Integer.parseInt(number.trim());
    } catch (NumberFormatException e) {
      return 1;
    }
  }

  /** Makes a directory that Spark deletes with the application; on RocksDB's local disk, so that SSTs can be linked. */
  static Path localDirectory() {
    SparkEnv env = SparkEnv.get();
    try {
      return env == null
          ? Files.createTempDirectory("merged-log")
          : LocalDirectory.make(env.conf(), "merged-log").toPath();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
