package io.pyspark.statestore.balance;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.fs.Schemes;
import io.pyspark.statestore.fs.SparkQuery;
import java.util.function.BooleanSupplier;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.util.Properties;

/**
 * Shows each batch's plan to the {@link Rebalancer} before the batch runs, and leaves the plan as it is. Spark runs
 * such a rule in the thread of the query, when no task of it is under way: what is said then of where stores are holds
 * for the batch. Said at another moment, a task's own report would overwrite it.
 */
public final class RebalanceRule extends ColumnarRule {
  private static final Logger LOG = LoggerFactory.getLogger(RebalanceRule.class);

  private final SparkSession session;
  private final BooleanSupplier isAuto;
  private final BooleanSupplier isOurs;

  /** Whether the option was asked for. Spark has a session, and with it a rule, for each run of a query. */
  private Boolean isOn;

  /**
   * Of a session.
   *
   * @param isAuto asked at the first plan with state
   * @param isOurs whether the session's stores merge files wherever they are; else only those at merged locations do
   */
  public RebalanceRule(SparkSession session, BooleanSupplier isAuto, BooleanSupplier isOurs) {
    this.session = session;
    this.isAuto = isAuto;
    this.isOurs = isOurs;
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
      if (isKnownOff()) {
        return;
      }
      StatefulStages stages = StatefulStages.of(plan);
      if (!stages.all().isEmpty() && isBatchOf(stages) && isOn() && isMerged(stages)) {
        Rebalancer.before(session.sparkContext(), stages);
      }
    } catch (Exception | LinkageError e) {
      // What is thrown in Scala need not be declared. Who stops the query interrupts this thread, and it has to notice.
      if (e instanceof InterruptedException) {
        Thread.currentThread().interrupt();
      }
      LOG.warn(
          "Stores stay where they are in this batch. What to do: nothing if it does not come again; else report it with"
              + " this stack trace",
          e);
    }
  }

  /** A plan that is only explained, or of a query that is no stream, has state of a run that never was. */
  private boolean isBatchOf(StatefulStages stages) {
    return SparkQuery.runOf(session.sparkContext()).equals(stages.run().toString());
  }

  /** A load of anything else is not cheap. */
  private boolean isMerged(StatefulStages stages) {
    return Schemes.isMerged(new Path(stages.location())) || isOurs.getAsBoolean();
  }

  /** Then no plan is walked. What walks it needs the sequences of the Scala for which the jar was compiled. */
  private synchronized boolean isKnownOff() {
    if (isOn == null && !ShimInfo.knowsSequencesOf(Properties.versionNumberString())) {
      isOn = false;
      if (isAuto.getAsBoolean()) {
        LOG.warn(
            "rebalance=auto does nothing in Spark 3.5 with Scala {}. What to do: use Spark 3.5 with Scala 2.12, or"
                + " Spark 4.0 or newer",
            Properties.versionNumberString());
      }
    }
    return Boolean.FALSE.equals(isOn);
  }

  private synchronized boolean isOn() {
    if (isOn == null) {
      isOn = isAuto.getAsBoolean();
    }
    return isOn;
  }
}
