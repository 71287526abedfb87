package io.pyspark.statestore.spark;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Plans nothing. Where Spark would refuse transformWithState, because it compares the provider's class name, this
 * refuses first, in words that name the way out.
 */
final class TransformWithStateGuard extends SparkStrategy {
  private static final String PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass";

  private final transient SparkSession session;

  TransformWithStateGuard(SparkSession session) {
    this.session = session;
  }

  @Override
  @SuppressWarnings("unchecked")
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    String operator = plan.getClass().getSimpleName();
    if (operator.startsWith("TransformWithState") && plan.isStreaming()) {
      String provider = session.conf().get(PROVIDER_KEY, "");
      if (provider.startsWith(TransformWithStateGuard.class.getPackageName() + ".")) {
        throw new IllegalStateException(new StateStoreFilesException(
            Id.PSS_NEEDS_PATH_DOOR, "Spark 4.3 runs transformWithState only with a state store provider whose class is"
                + " named RocksDBStateStoreProvider, and " + PROVIDER_KEY + " is " + provider + ". Use the path door:"
                + " configure(builder, mode=\"path\") and checkpointLocation = merged_path(\"<location>\").").getMessage());
      }
    }
    return (Seq<SparkPlan>) (Seq<?>) Nil$.MODULE$;
  }
}
