package io.pyspark.statestore.fs;

import io.pyspark.statestore.log.MergedLog;
import java.io.IOException;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;

/**
 * How new a view a question needs.
 *
 * <p>A task that loads a version needs all that was committed before its stage began: the version was committed by an
 * earlier batch. So one refresh serves all questions of a stage attempt in this process. Spark's maintenance threads
 * may work with an older view, which only deletes less. Whoever else asks gets a refresh of his own.
 */
final class Freshness {
  private record StageAttempt(String application, int stage, int attempt) {}

  private Freshness() {}

  /** What the current thread's questions share an answer by; null outside of a task. */
  static Object occasion() {
    TaskContext task = TaskContext.get();
    SparkEnv env = SparkEnv.get();
    return task == null || env == null
        ? null
        : new StageAttempt(env.conf().get("spark.app.id", ""), task.stageId(), task.stageAttemptNumber());
  }

  /** Makes the view of {@code log} as new as the current thread needs it. */
  static void ensure(MergedLog log) throws IOException {
    ensure(log, null);
  }

  /** As {@link #ensure(MergedLog)}; {@code fallback} is the occasion of a thread that works for a task. */
  static void ensure(MergedLog log, Object fallback) throws IOException {
    Object own = occasion();
    Object occasion = own == null ? fallback : own;
    if (MergedLog.isMaintenanceThread()) {
      log.maintain();
    } else if (occasion != null) {
      log.refreshFor(occasion);
    } else {
      log.refresh();
    }
  }
}
