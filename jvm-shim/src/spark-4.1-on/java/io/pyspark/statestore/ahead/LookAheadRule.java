package io.pyspark.statestore.ahead;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.ahead.StateKeys.How;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.BaseStreamingDeduplicateExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.SessionWindowStateStoreRestoreExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreRestoreExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExecBase;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts a {@link LookAheadExec} under each stateful operator whose keys its input tells. Spark runs such a rule over
 * each batch's physical plan, when the operators know their state.
 */
public final class LookAheadRule extends ColumnarRule {
  private static final Logger LOG = LoggerFactory.getLogger(LookAheadRule.class);

  private final Supplier<Options> options;

  /** Whether the options were asked for. Spark has a session, and with it a rule, for each run of a query. */
  private boolean isKnown;

  private LookAheadExec.Settings settings;

  /**
   * Of a session.
   *
   * @param options asked for at the first plan with state; null where nothing is to be looked ahead
   */
  public LookAheadRule(Supplier<Options> options) {
    this.options = options;
  }

  private synchronized LookAheadExec.Settings settings() {
    if (!isKnown) {
      isKnown = true;
      Options found = options.get();
      settings =
          found == null || found.lookAheadRows() == 0
              ? null
              : new LookAheadExec.Settings(found.lookAheadRows(), found.lookAheadBytes(), found.lookAheadParallelism());
    }
    return settings;
  }

  @Override
  public Rule<SparkPlan> preColumnarTransitions() {
    return new Insertion();
  }

  private final class Insertion extends Rule<SparkPlan> {
    @Override
    public SparkPlan apply(SparkPlan plan) {
      try {
        return inserted(plan);
      } catch (RuntimeException | LinkageError e) {
        LOG.info("No state is fetched ahead for this plan", e);
        return plan;
      }
    }

    /** Copies an operator once at most: a copy of a join broadcasts Hadoop's configuration. */
    private SparkPlan inserted(SparkPlan plan) {
      List<SparkPlan> children = new ArrayList<>();
      boolean isChanged = false;
      for (SparkPlan child : CollectionConverters.asJava(plan.children())) {
        children.add(inserted(child));
        isChanged |= children.get(children.size() - 1) != child;
      }
      List<StateKeys> keys = keysOf(plan);
      for (int child = 0; child < keys.size() && settings() != null; child++) {
        if (!(children.get(child) instanceof LookAheadExec)) {
          children.set(child, new LookAheadExec(children.get(child), keys.get(child), settings()));
          isChanged = true;
        }
      }
      return isChanged ? plan.withNewChildren(CollectionConverters.asScala(children).toSeq()) : plan;
    }
  }

  /** What an operator reads for the rows of its first child, and of its second; nothing where that is not known. */
  private static List<StateKeys> keysOf(SparkPlan operator) {
    if (operator instanceof StateStoreRestoreExec restore) {
      return of(restore.stateInfo(), expressions(restore.keyExpressions()), operator, How.ROW);
    }
    if (operator instanceof SessionWindowStateStoreRestoreExec restore) {
      return of(restore.stateInfo(), expressions(restore.keyWithoutSessionExpressions()), operator, How.PREFIX);
    }
    if (operator instanceof BaseStreamingDeduplicateExec deduplicate) {
      return of(deduplicate.stateInfo(), expressions(deduplicate.keyExpressions()), operator, How.ROW);
    }
    if (operator instanceof FlatMapGroupsWithStateExecBase groups && !groups.hasInitialState()) {
      return of(groups.stateInfo(), expressions(groups.groupingAttributes()), operator, How.ROW);
    }
    if (operator instanceof StreamingSymmetricHashJoinExec join && join.stateInfo().isDefined()) {
      StatefulOperatorStateInfo info = join.stateInfo().get();
      int format = join.stateFormatVersion();
      return List.of(
          StateKeys.ofJoin(info, join.leftKeys(), join.left().output(), format, "left", "right"),
          StateKeys.ofJoin(info, join.rightKeys(), join.right().output(), format, "right", "left"));
    }
    return List.of();
  }

  private static List<StateKeys> of(
      Option<StatefulOperatorStateInfo> info, Seq<Expression> key, SparkPlan operator, How how) {
    // Without a key there is one row only.
    return info.isEmpty() || key.isEmpty()
        ? List.of()
        : List.of(StateKeys.of(info.get(), key, operator.children().head().output(), how));
  }

  @SuppressWarnings("unchecked")
  private static Seq<Expression> expressions(Seq<? extends Expression> attributes) {
    return (Seq<Expression>) attributes;
  }
}
