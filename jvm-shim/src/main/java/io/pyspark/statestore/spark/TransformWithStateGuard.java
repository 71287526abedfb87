package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/**
 * Refuses transformWithState behind the provider door, with a message that names the way out. Spark would refuse it
 * itself, because it compares the provider's class name, and would not say what to do.
 */
final class TransformWithStateGuard {
  private static final String PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass";

  private TransformWithStateGuard() {}

  /** Refuses the operator where it is one, and the session keeps its state behind the provider door. */
  static void check(SparkSession session, LogicalPlan operator) {
    if (operator.getClass().getSimpleName().startsWith("TransformWithState") && operator.isStreaming()) {
      String provider = session.conf().get(PROVIDER_KEY, "");
      if (provider.startsWith(TransformWithStateGuard.class.getPackageName() + ".")) {
        String message =
            "Spark "
                + ShimInfo.sparkMinor()
                + " runs transformWithState only with a state store provider whose class is named"
                + " RocksDBStateStoreProvider, and "
                + PROVIDER_KEY
                + " is "
                + provider
                + ". Use the path door: configure(builder, mode=\"path\") and checkpointLocation = merged_path(\"<a"
                + " location that is not used yet>\").";
        // PySpark shows the message of this class of exceptions without a JVM stack trace.
        throw new IllegalArgumentException(new StateStoreFilesException(Id.PSS_NEEDS_PATH_DOOR, message).getMessage());
      }
    }
  }
}
