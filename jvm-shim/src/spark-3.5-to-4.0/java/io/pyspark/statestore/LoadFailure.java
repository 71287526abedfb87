package io.pyspark.statestore;

import org.apache.spark.QueryContext;
import org.apache.spark.SparkException;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * An exception whose message reaches the user when state cannot be loaded. Before Spark 4.1 it is the cause of Spark's
 * own exception, except where it is {@link #addedTo} that.
 */
public interface LoadFailure {
  /** Says what was wrong, where, and what to do. */
  String getMessage();

  /** Spark's exception, with our message after Spark's. */
  @SuppressWarnings("deprecation")
  default SparkException addedTo(SparkException spark) {
    return new SparkException(
        spark.getMessage() + " " + getMessage(),
        (Throwable) this,
        Option.apply(spark.getErrorClass()),
        Map$.MODULE$.empty(),
        new QueryContext[0]);
  }
}
