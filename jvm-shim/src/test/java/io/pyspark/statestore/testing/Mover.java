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
 * Has partitions move: tells Spark's coordinator that each store is on the executor where it is not. Tasks prefer the
 * executor that the coordinator names, and with a long {@code spark.locality.wait} they wait for it.
 */
public final class Mover {
    private Mover() {}

    /**
     * Moves the stores of the query's first operator; to be called on the driver.
     *
     * @param stateDirectory of the query, as Spark names it
     * @param executors ids of two executors
     * @return how many stores Spark knew the location of
     */
    @SuppressWarnings("unchecked")
    public static int move(String stateDirectory, int partitions, String runId, List<String> executors) {
        StateStoreCoordinatorRef coordinator = StateStoreCoordinatorRef.forDriver(SparkEnv.get(), new SQLConf());
        int moved = 0;
        for (int partition = 0; partition < partitions; partition++) {
            StateStoreProviderId store = new StateStoreProviderId(
                    new StateStoreId(stateDirectory, 0, partition, "default"), UUID.fromString(runId));
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
