package io.pyspark.statestore.fs;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.TaskEnd;
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
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;
import scala.Option;

/** What Spark says of this process: its ids, its number of task slots, and where it may put local files. */
final class ProcessIdentity {
  /** {@code local}, {@code local[2]}, {@code local[*]}, {@code local[2,4]}; not {@code local-cluster[…]}. */
  private static final Pattern LOCAL = Pattern.compile("local(?:\\[([0-9*]+)(?:,.*)?\\])?");

  /** Spark's id for the driver's process. */
  private static final String DRIVER = "driver";

  private ProcessIdentity() {}

  /**
   * The context of this process; null where there is none, also while one is being started or stopped: a thread of an
   * earlier context may be at work then. Who asks Spark's {@code getOrCreate} makes another one, which ends the one
   * that is being started.
   */
  static SparkContext context() {
    Option<SparkContext> active = SparkContext$.MODULE$.getActive();
    return active.isEmpty() ? null : active.get();
  }

  /** This process, for the log of a checkpoint. */
  static ProcessFacts facts(String queryRunId, Configuration conf) {
    String interval = conf.get("spark.sql.streaming.stateStore.maintenanceInterval", "60s");
    return new ProcessFacts(
        () -> headerFields(queryRunId),
        ProcessIdentity::localDirectory,
        ProcessIdentity::taskSlots,
        JavaUtils.timeStringAsMs(interval),
        TASK);
  }

  private static final TaskEnd TASK =
      new TaskEnd() {
        @Override
        public boolean waitsFor(Wait last) {
          TaskContext task = TaskContext.get();
          if (task == null || task.isCompleted()) {
            return false;
          }
          task.addTaskCompletionListener(
              (TaskCompletionListener)
                  ended -> {
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
          return SparkQuery.batch();
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

  /** Whether this process is the driver. */
  static boolean isDriver(SparkEnv env) {
    return env != null && DRIVER.equals(env.executorId());
  }

  /** Whether all tasks of this application run in this process. */
  static boolean runsAllTasks() {
    SparkEnv env = SparkEnv.get();
    return isDriver(env) && isLocal(env.conf());
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
