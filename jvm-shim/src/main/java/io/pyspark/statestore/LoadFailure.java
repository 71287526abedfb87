package io.pyspark.statestore;

import org.apache.spark.QueryContext;
import org.apache.spark.SparkException;
import org.apache.spark.sql.execution.streaming.state.ConvertableToCannotLoadStoreError;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * A reason why state could not be loaded that Spark's users see: of a query that failed PySpark shows the message of
 * Spark's exception and not that of its cause.
 */
public interface LoadFailure extends ConvertableToCannotLoadStoreError {
  /** What was wrong, where, what to do. */
  String getMessage();

  @Override
  default SparkException convertToCannotLoadStoreError() {
    String condition = "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED";
    return with(condition, "[" + condition + "] An error occurred during loading state.");
  }

  /** An exception of Spark's with these words, and these beside them. */
  default SparkException beside(SparkException sparks) {
    return with(sparks.getCondition(), sparks.getMessage());
  }

  private SparkException with(String condition, String words) {
    return new SparkException(
        words + " " + getMessage(), (Throwable) this, Option.apply(condition), Map$.MODULE$.empty(), new QueryContext[0]);
  }
}
