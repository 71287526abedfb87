package io.pyspark.statestore.ahead;

import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import io.pyspark.statestore.read.StoreAhead;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The stores that the tasks of this process have opened, and that may be read ahead.
 *
 * <p>A store is found by the attempt of the task that opened it. So no task reads ahead on a store that another one
 * uses: a store's encoders keep what they write in buffers of their own.
 */
public final class StoresOfTasks {
  private static final Map<Long, Map<StateStoreId, Opened>> BY_ATTEMPT = new ConcurrentHashMap<>();

  /**
   * A store.
   *
   * @param store as Spark's operator has it
   * @param ahead fetches what is in its files
   * @param figures hears what was done
   */
  record Opened(ReadStateStore store, StoreAhead<?> ahead, Consumer<LookAhead> figures) {
    /** What reads of the current thread would ask for. */
    @SuppressWarnings("unchecked")
    List<Object> keysOf(BooleanSupplier reads, long bytes) {
      return (List<Object>) ahead.keysOf(reads, bytes);
    }

    /** Fetches what keys of {@link #keysOf} need. */
    @SuppressWarnings("unchecked")
    LookAhead fetch(List<Object> keys, int parallelism, BooleanSupplier isCancelled) throws IOException {
      return ((StoreAhead<Object>) ahead).fetch(keys, parallelism, isCancelled);
    }
  }

  private StoresOfTasks() {}

  /** The current task has opened a store, or has it for writing now. Outside of tasks nobody looks ahead. */
  public static void opened(StateStoreId id, ReadStateStore store, StoreAhead<?> ahead, Consumer<LookAhead> figures) {
    TaskContext task = TaskContext.get();
    if (task != null) {
      long attempt = task.taskAttemptId();
      BY_ATTEMPT.computeIfAbsent(attempt, first -> forgottenWith(task)).put(id, new Opened(store, ahead, figures));
    }
  }

  private static Map<StateStoreId, Opened> forgottenWith(TaskContext task) {
    task.addTaskCompletionListener((TaskCompletionListener) ended -> BY_ATTEMPT.remove(ended.taskAttemptId()));
    return new ConcurrentHashMap<>();
  }

  /** The store that the task has opened last of this name; null where there is none, or nothing to fetch for it. */
  static Opened of(TaskContext task, StateStoreId id) {
    return BY_ATTEMPT.getOrDefault(task.taskAttemptId(), Map.of()).get(id);
  }
}
