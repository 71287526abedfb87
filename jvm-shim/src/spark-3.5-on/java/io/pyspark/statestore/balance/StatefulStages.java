package io.pyspark.statestore.balance;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import scala.collection.Iterator;

/** The stateful operators of a batch's plan, by stage: those of one stage run in the same tasks. */
final class StatefulStages {
  /** The ids of a stage's stateful operators. Their stores of one partition are used by one task. */
  record Stage(List<Long> operators) {}

  private final List<Stage> stages = new ArrayList<>();
  private boolean isChain = true;
  private OperatorState any;

  private StatefulStages() {}

  /** Finds them. A plan that is of no batch has none. */
  static StatefulStages of(SparkPlan plan) {
    StatefulStages found = new StatefulStages();
    found.addStageOf(plan);
    return found;
  }

  /** The stages, each after those from which its rows come. */
  List<Stage> all() {
    return stages;
  }

  /** Whether each gets its rows from the one before, so that Spark's stages have the same order. */
  boolean isChain() {
    return isChain;
  }

  UUID run() {
    return any.run();
  }

  /** The directory of the state of all. */
  String location() {
    return any.location();
  }

  int partitions() {
    return any.partitions();
  }

  /** Adds the stage that ends with an operator, after those before it. */
  private void addStageOf(SparkPlan last) {
    List<Long> operators = new ArrayList<>();
    isChain &= visit(last, operators) < 2;
    if (!operators.isEmpty()) {
      stages.add(new Stage(operators));
    }
  }

  /** Returns how many of the stages from which rows come have state, or have it before them. */
  private int visit(SparkPlan plan, List<Long> operators) {
    Optional<OperatorState> state = OperatorState.of(plan);
    if (state.isPresent()) {
      any = state.get();
      if (!operators.contains(any.operator())) {
        operators.add(any.operator());
      }
    }
    int branches = 0;
    Iterator<SparkPlan> children = plan.children().iterator();
    while (children.hasNext()) {
      SparkPlan child = children.next();
      if (child instanceof ShuffleExchangeLike) {
        int before = stages.size();
        addStageOf(child.children().head());
        branches += stages.size() > before ? 1 : 0;
      } else {
        branches += visit(child, operators);
      }
    }
    return branches;
  }
}
