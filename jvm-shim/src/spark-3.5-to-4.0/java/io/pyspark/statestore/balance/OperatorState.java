package io.pyspark.statestore.balance;

import java.util.Optional;
import java.util.UUID;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.StatefulOperator;
import org.apache.spark.sql.execution.streaming.StatefulOperatorStateInfo;

/**
 * What Spark knows of a stateful operator's state when it plans a batch.
 *
 * @param run the id of the query's run
 * @param location the directory of the state of all operators
 * @param operator the operator's id
 * @param partitions how many it has
 */
record OperatorState(UUID run, String location, long operator, int partitions) {
  /** That of an operator; empty for one without state, or in a plan of no batch. */
  static Optional<OperatorState> of(SparkPlan plan) {
    if (!(plan instanceof StatefulOperator stateful) || stateful.stateInfo().isEmpty()) {
      return Optional.empty();
    }
    StatefulOperatorStateInfo info = stateful.stateInfo().get();
    return Optional.of(
        new OperatorState(info.queryRunId(), info.checkpointLocation(), info.operatorId(), info.numPartitions()));
  }
}
