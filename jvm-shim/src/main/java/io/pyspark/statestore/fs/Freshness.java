package io.pyspark.statestore.fs;

import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.log.MergedLog;
import java.io.IOException;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;

/**
 * Decides how new the index must be for a question of the current thread.
 *
 * <p>A task that loads a version needs all that was committed before its stage began: an earlier batch committed that
 * version. So one refresh serves all questions of a stage attempt in this process. Spark's maintenance threads may work
 * with an older index, which only makes them delete less. Every other question gets a refresh of its own.
 */
final class Freshness {
  private Freshness() {}

  /** The key of the current thread's task; null outside of a task. */
  static FreshnessKey key() {
    TaskContext task = TaskContext.get();
    SparkEnv env = SparkEnv.get();
    return task == null || env == null
        ? null
        : new FreshnessKey.StageAttempt(
            env.conf().get("spark.app.id", ""), task.stageId(), task.stageAttemptNumber(), SparkQuery.hasTask(task));
  }

  /**
   * Makes what {@code log} knows of a path as new as the current thread needs it.
   *
   * @param fallback the key to use outside of a task, in a thread that works for one; null for none
   */
  static void ensure(MergedLog log, String path, FreshnessKey fallback) throws IOException {
    FreshnessKey own = key();
    FreshnessKey key = own == null ? fallback : own;
    if (Threads.isMaintenance()) {
      log.maintain();
    } else if (key != null) {
      log.refreshFor(path, key);
    } else {
      log.refresh(path);
    }
  }
}
