package io.pyspark.statestore.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Shows each operator of a session's plans to {@link TransformWithStateGuard} and {@link PartitionDirectories}. */
final class PlanChecks {
  private PlanChecks() {}

  private static void checkAll(SparkSession session, LogicalPlan plan) {
    plan.foreach(
        new AbstractFunction1<LogicalPlan, BoxedUnit>() {
          @Override
          public BoxedUnit apply(LogicalPlan operator) {
            TransformWithStateGuard.check(session, operator);
            PartitionDirectories.check(session, operator);
            return BoxedUnit.UNIT;
          }
        });
  }

  /** Looks when the DataFrame is made, in a session that is built with the extension. */
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

  /** Looks when the query starts, in a session that was running already and takes no more check rules. */
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
