package io.pyspark.statestore;

import org.apache.spark.QueryContext;
import org.apache.spark.SparkException;
import org.apache.spark.sql.execution.streaming.state.ConvertableToCannotLoadStoreError;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * An exception whose message reaches the user when state cannot be loaded. For a failed query, PySpark shows only the
 * message of Spark's exception, not that of its cause, so our message goes into Spark's.
 */
public interface LoadFailure extends ConvertableToCannotLoadStoreError {
  /** Says what was wrong, where, and what to do. */
  String getMessage();

  @Override
  default SparkException convertToCannotLoadStoreError() {
    String condition = "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED";
    return with(condition, "[" + condition + "] An error occurred during loading state.");
  }

  /** Spark's exception, with our message after Spark's. */
  default SparkException addedTo(SparkException spark) {
    return with(spark.getCondition(), spark.getMessage());
  }

  private SparkException with(String condition, String words) {
    return new SparkException(
        words + " " + getMessage(),
        (Throwable) this,
        Option.apply(condition),
        Map$.MODULE$.empty(),
        new QueryContext[0]);
  }
}
