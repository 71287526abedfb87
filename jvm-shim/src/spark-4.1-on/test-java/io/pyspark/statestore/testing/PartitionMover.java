package io.pyspark.statestore.testing;

import java.util.List;
import java.util.UUID;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.collection.immutable.Nil$;

/**
 * Moves partitions between two executors: it tells Spark's coordinator that each store is on the other one. Tasks
 * prefer the executor that the coordinator names, and with a long {@code spark.locality.wait} they wait for it.
 */
public final class PartitionMover {
  private PartitionMover() {}

  /**
   * Moves the stores of the query's first operator. Only the driver can call this.
   *
   * @param stateDirectory the query's, as Spark names it
   * @param executors the ids of the two executors
   * @return the number of stores whose executor Spark knew
   */
  @SuppressWarnings("unchecked")
  public static int move(String stateDirectory, int partitions, String runId, List<String> executors) {
    StateStoreCoordinatorRef coordinator = StateStoreCoordinatorRef.forDriver(SparkEnv.get(), new SQLConf());
    int moved = 0;
    for (int partition = 0; partition < partitions; partition++) {
      StateStoreProviderId store =
          new StateStoreProviderId(new StateStoreId(stateDirectory, 0, partition, "default"), UUID.fromString(runId));
      Option<String> known = coordinator.getLocation(store);
      if (known.isDefined()) {
        // executor_<host>_<id>
        String location = known.get();
        int end = location.lastIndexOf('_');
        String host = location.substring("executor_".length(), end);
        boolean first = location.substring(end + 1).equals(executors.get(0));
        coordinator.reportActiveInstance(
            store,
            host,
            executors.get(first ? 1 : 0),
            (scala.collection.immutable.Seq<StateStoreProviderId>) (Object) Nil$.MODULE$);
        moved++;
      }
    }
    return moved;
  }
}
