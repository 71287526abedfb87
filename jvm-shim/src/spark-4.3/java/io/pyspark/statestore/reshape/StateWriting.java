package io.pyspark.statestore.reshape;

import java.io.IOException;
import java.io.Serializable;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The writing of one new partition of a store, in a task. Repeated, it writes the same version again, and the newest
 * write counts.
 *
 * @param store the store
 * @param to the number of the partition
 */
record StateWriting(StoreRewrite store, int to) implements Serializable {

  /**
   * What was written.
   *
   * @param store which store, by its name
   * @param info the partition, and the id that Spark's checkpoint format 2 gives the version
   */
  record Done(String store, StateStoreCheckpointInfo info) implements Serializable {}

  Done write() throws IOException {
    return write(store.rowsOf(to));
  }

  /** Writes rows that have been brought together for this partition. */
  Done write(Iterator<InternalRow> rows) throws IOException {
    if (store.isHeap()) {
      return new Done(store.name(), new HeapSnapshot(store, to).write(rows));
    }
    StatePartitionAllColumnFamiliesWriter writer = new StatePartitionAllColumnFamiliesWriter(
        store.conf(), store.hadoop().value(), to, store.location(), store.operator(), store.storeName(), store.batch(),
        store.families(), store.schemas());
    return new Done(store.name(), writer.write(CollectionConverters.asScala(rows)));
  }
}
