package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Refuses transformWithState behind the provider door, with a message that names the way out. Spark would refuse it
 * itself, because it compares the provider's class name, and would not say what to do.
 */
final class TransformWithStateGuard {
  private static final String PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass";

  private TransformWithStateGuard() {}

  private static void check(SparkSession session, LogicalPlan operator) {
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

  private static void checkAll(SparkSession session, LogicalPlan plan) {
    plan.foreach(
        new AbstractFunction1<LogicalPlan, BoxedUnit>() {
          @Override
          public BoxedUnit apply(LogicalPlan operator) {
            check(session, operator);
            return BoxedUnit.UNIT;
          }
        });
  }

  /** Refuses when the DataFrame is made, in a session that is built with the extension. */
  static final class CheckRule extends AbstractFunction1<LogicalPlan, BoxedUnit> {
    private final SparkSession session;

    CheckRule(SparkSession session) {
      this.session = session;
    }

    @Override
    public BoxedUnit apply(LogicalPlan plan) {
      checkAll(session, plan);
      return BoxedUnit.UNIT;
    }
  }

  /** Refuses when the query starts, in a session that was running already and takes no more check rules. */
  static final class Optimization extends Rule<LogicalPlan> {
    private final SparkSession session;

    Optimization(SparkSession session) {
      this.session = session;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      checkAll(session, plan);
      return plan;
    }
  }
}
