package io.pyspark.statestore.balance;

import java.util.function.BooleanSupplier;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Shows each batch's plan to the {@link Rebalancer} before the batch runs, and leaves the plan as it is. Spark runs
 * such a rule in the thread of the query, when no task of it is under way: what is said then of where stores are holds
 * for the batch. Said at another moment, a task's own report would overwrite it.
 */
public final class RebalanceRule extends ColumnarRule {
  private static final Logger LOG = LoggerFactory.getLogger(RebalanceRule.class);

  private final SparkSession session;
  private final BooleanSupplier isAuto;

  /** Whether the option was asked for. Spark has a session, and with it a rule, for each run of a query. */
  private Boolean isOn;

  /**
   * Of a session.
   *
   * @param isAuto asked at the first plan with state
   */
  public RebalanceRule(SparkSession session, BooleanSupplier isAuto) {
    this.session = session;
    this.isAuto = isAuto;
  }

  /** How many partitions this driver has moved, or wished to. */
  public static long movedPartitions() {
    return Rebalancer.moved();
  }

  @Override
  public Rule<SparkPlan> preColumnarTransitions() {
    return new Rule<>() {
      @Override
      public SparkPlan apply(SparkPlan plan) {
        look(plan);
        return plan;
      }
    };
  }

  private void look(SparkPlan plan) {
    try {
      StatefulStages stages = StatefulStages.of(plan);
      if (!stages.all().isEmpty() && isOn()) {
        Rebalancer.before(session.sparkContext(), stages);
      }
    } catch (RuntimeException | LinkageError e) {
      LOG.warn(
          "Stores stay where they are in this batch. What to do: nothing if it does not come again; else report it with"
              + " this stack trace",
          e);
    }
  }

  private synchronized boolean isOn() {
    if (isOn == null) {
      isOn = isAuto.getAsBoolean();
    }
    return isOn;
  }
}
