package io.pyspark.statestore.fs;

import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.SparkSession;

/**
 * A run of a query, as Spark knows it while it is active. Spark moves these classes about from version to version, so
 * they are asked by the names of their methods.
 */
public final class ActiveRuns {
  private final Object execution;

  private ActiveRuns(Object execution) {
    this.execution = execution;
  }

  /** The run that is active in any session of this application; null if it is not, or Spark does not say. */
  public static ActiveRuns find(UUID query, UUID run) {
    try {
      Map<?, ?> active = (Map<?, ?>) call(call(SparkSession.active(), "sharedState"), "activeStreamingQueries");
      Object found = active.get(query);
      return found != null && run.equals(call(found, "runId")) ? new ActiveRuns(found) : null;
    } catch (ReflectiveOperationException | RuntimeException e) {
      return null;
    }
  }

  /** The location of its checkpoint, as the query was started with; null if Spark does not say. */
  public String checkpoint() {
    try {
      return String.valueOf(call(execution, "resolvedCheckpointRoot"));
    } catch (ReflectiveOperationException | RuntimeException e) {
      return null;
    }
  }

  /** The thread that works on the batches. It may go on for a while after Spark says that the query has ended. */
  Thread thread() {
    try {
      return (Thread) call(execution, "queryExecutionThread");
    } catch (ReflectiveOperationException | RuntimeException e) {
      return null;
    }
  }

  /** Has Spark stop the query. Where the application has ended before, that fails when the query knows of it. */
  void stop() {
    try {
      call(execution, "stop");
    } catch (ReflectiveOperationException | RuntimeException e) {
      // Its thread is interrupted instead.
    }
  }

  private static Object call(Object object, String method) throws ReflectiveOperationException {
    return object.getClass().getMethod(method).invoke(object);
  }
}
