package io.pyspark.statestore.reshape;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StatePartitionKeyExtractor;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The writing of new partitions of a store, in a task. Repeated, it writes the same version again, and the newest write
 * counts.
 *
 * @param store the store
 * @param partitions the numbers of the partitions; all get something of the same old ones
 */
record StateWriting(StoreRewrite store, int[] partitions) implements Serializable {

  /**
   * What was written.
   *
   * @param store which store, by its name
   * @param info the partition, and the id that Spark's checkpoint format 2 gives the version
   */
  record Done(String store, StateStoreCheckpointInfo info) implements Serializable {}

  List<Done> write() throws Exception {
    if (store.isSplit()) {
      return split();
    }
    if (SortedFiles.suit(store)) {
      return writeSorted();
    }
    return List.of(write(new MovedRows(store, store.parents(partitions[0]), partitions)));
  }

  /** Writes rows that have been brought together for the only partition. */
  Done write(Iterator<InternalRow> rows) throws IOException {
    if (store.isHeap()) {
      return new Done(store.name(), new HeapSnapshot(store, partitions[0]).write(rows));
    }
    return new Done(store.name(), sparksWriter(partitions[0]).write(CollectionConverters.asScala(rows)));
  }

  private List<Done> writeSorted() throws Exception {
    Places places = new Places(store);
    Map<Integer, SortedFiles> files = new HashMap<>();
    try {
      for (int each : partitions) {
        files.put(each, SortedFiles.ofNothing(store, sparksWriter(each)));
      }
      for (int parent : store.parents(partitions[0])) {
        try (OldStore.Rows old = store.old().rows(parent)) {
          for (Map.Entry<String, StatePartitionKeyExtractor> family : old.partitionKeys().entrySet()) {
            old.rows().forEach(family.getKey(), (key, bytes, at) -> {
              int to = store.isSingle() ? 0 : places.ofKey(family.getValue().partitionKey(key), parent);
              SortedFiles file = files.get(to);
              if (file != null) {
                file.add(family.getKey(), bytes, old.rows(), at);
              }
            });
          }
        }
      }
      return commit(files);
    } finally {
      close(files.values());
    }
  }

  /**
   * Takes out of each partition, which has all rows of the old one, those of the others. The first of them is the old one
   * itself, so it tells what they have. Values are of no interest.
   */
  private List<Done> split() throws Exception {
    int parent = store.parents(partitions[0])[0];
    Option<String> id = store.old().checkpointId(parent);
    Places places = new Places(store);
    Map<Integer, SortedFiles> files = new HashMap<>();
    try {
      for (int each : partitions) {
        files.put(each, SortedFiles.ofVersion(store, sparksWriter(each), id));
      }
      for (Map.Entry<String, StatePartitionKeyExtractor> family : store.old().partitionKeys(parent).entrySet()) {
        files.get(parent).rows().forEach(family.getKey(), (key, bytes, at) -> {
          int to = places.ofKey(family.getValue().partitionKey(key), parent);
          for (int each : partitions) {
            if (each != to) {
              files.get(each).remove(family.getKey(), bytes);
            }
          }
        });
      }
      return commit(files);
    } finally {
      close(files.values());
    }
  }

  private List<Done> commit(Map<Integer, SortedFiles> files) throws Exception {
    List<Done> done = new ArrayList<>();
    for (int each : partitions) {
      done.add(new Done(store.name(), files.get(each).commit()));
    }
    return done;
  }

  /** Closes all of them, whatever becomes of one. */
  private static void close(Collection<SortedFiles> files) {
    RuntimeException failure = null;
    for (SortedFiles each : files) {
      try {
        each.close();
      } catch (RuntimeException e) {
        failure = failure == null ? e : failure;
      }
    }
    if (failure != null) {
      throw failure;
    }
  }

  private StatePartitionAllColumnFamiliesWriter sparksWriter(int partition) {
    return new StatePartitionAllColumnFamiliesWriter(
        store.conf(), store.hadoop().value(), partition, store.location(), store.operator(), store.storeName(),
        store.batch(), store.families(), store.schemas());
  }
}
