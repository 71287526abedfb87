package io.pyspark.statestore.balance;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.spark.ExecutorAllocationClient;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.status.api.v1.ExecutorSummary;
import scala.Option;
import scala.collection.Iterator;

/**
 * Where the stores of a run are, as Spark's coordinator of stores in the driver knows it. Spark prefers that executor
 * for the partition's next task, and each store reports its own when it is loaded, so all of this is a wish.
 *
 * <p>The same source for all versions, which the compiler ties to their Scala's collections.
 */
final class Places {
  /** What Spark calls the stores of a partition: those of a join have names, all others are the default one. */
  private static final List<String> STORES =
      List.of(
          "default",
          "left-keyToNumValues",
          "left-keyWithIndexToValue",
          "right-keyToNumValues",
          "right-keyWithIndexToValue");

  private static final String PREFIX = "executor_";
  private static final String DRIVER = "driver";

  /** An executor that takes tasks, by its name and the host that Spark knows it by. */
  record Taker(String id, String host, int slots) {}

  private final StateStoreCoordinatorRef coordinator = StateStoreCoordinatorRef.forExecutor(SparkEnv.get());
  private final String location;
  private final UUID run;

  Places(String location, UUID run) {
    this.location = location;
    this.run = run;
  }

  /** The executors that take tasks, by their ids: not those that are excluded, or about to end. */
  static Map<String, Taker> takers(SparkContext context) {
    Map<String, Taker> takers = new TreeMap<>();
    Object backend = context.schedulerBackend();
    Iterator<ExecutorSummary> all = context.statusStore().executorList(true).iterator();
    while (all.hasNext()) {
      ExecutorSummary each = all.next();
      boolean mayTake = each.isActive() && !each.isExcluded() && !each.id().equals(DRIVER) && each.maxTasks() > 0;
      // Tasks of a query never run where another resource profile was asked for.
      mayTake &= each.resourceProfileId() == 0;
      if (mayTake && backend instanceof ExecutorAllocationClient client && client.isExecutorActive(each.id())) {
        String host = each.hostPort().replaceFirst(":\\d+$", "");
        takers.put(each.id(), new Taker(each.id(), host, each.maxTasks()));
      }
    }
    return takers;
  }

  /** The stores that an operator has in a partition; none where it was never loaded in this run. */
  List<String> storesOf(long operator, int partition) {
    List<String> found = new ArrayList<>();
    for (String each : STORES) {
      if (of(operator, partition, each) != null) {
        found.add(each);
      }
    }
    return found;
  }

  /** The id of the executor that has a store, or had it before it was lost; null where none is known. */
  String of(long operator, int partition, String store) {
    Option<String> known = coordinator.getLocation(id(operator, partition, store));
    // executor_<host>_<id>; a host has no underscore, and an executor's id may be any text.
    int end = known.isEmpty() ? -1 : known.get().indexOf('_', PREFIX.length());
    return end < 0 ? null : known.get().substring(end + 1);
  }

  /** Says that a store is on an executor, so that the partition's next task goes there. */
  void say(long operator, int partition, String store, Taker taker) {
    coordinator.reportActiveInstance(
        id(operator, partition, store), taker.host, taker.id, scala.collection.immutable.List$.MODULE$.empty());
  }

  private StateStoreProviderId id(long operator, int partition, String store) {
    return new StateStoreProviderId(new StateStoreId(location, operator, partition, store), run);
  }
}
