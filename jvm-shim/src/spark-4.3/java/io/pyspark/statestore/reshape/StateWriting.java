package io.pyspark.statestore.reshape;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
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
   * What a task has done.
   *
   * @param store which store, by its name
   * @param infos the partitions that were written, and the id that Spark's checkpoint format 2 gives the version of
   *     each
   * @param read of each old partition that was read, how many rows it has
   * @param taken of each of them, how many rows went into the new ones
   * @param moved how many rows of a shuffle were written, of which nobody knows where they were before
   */
  record Done(
      String store,
      ArrayList<StateStoreCheckpointInfo> infos,
      HashMap<Integer, Long> read,
      HashMap<Integer, Long> taken,
      long moved)
      implements Serializable {
    /** The reading of all old partitions for a shuffle. A task that was repeated says the same again. */
    static Done ofReading(StoreRewrite store, List<long[]> said) {
      HashMap<Integer, Long> read = new HashMap<>();
      said.forEach(each -> read.put((int) each[0], each[1]));
      return new Done(store.name(), new ArrayList<>(), read, new HashMap<>(), 0);
    }
  }

  /**
   * Makes sure that each row of each old partition went into one new partition, and that all of these were written.
   *
   * @return what was written of each partition
   */
  static StateStoreCheckpointInfo[] accountedFor(StoreRewrite store, List<Done> done) {
    StateStoreCheckpointInfo[] infos = new StateStoreCheckpointInfo[store.partitions()];
    long[] read = new long[store.partitionsBefore()];
    long[] taken = new long[store.partitionsBefore()];
    long moved = 0;
    Arrays.fill(read, -1);
    for (Done each : done) {
      each.infos().forEach(info -> infos[info.partitionId()] = info);
      each.taken().forEach((from, count) -> taken[from] += count);
      moved += each.moved();
      for (Map.Entry<Integer, Long> of : each.read().entrySet()) {
        if (read[of.getKey()] >= 0 && read[of.getKey()] != of.getValue()) {
          throw new IllegalStateException(
              "Partition "
                  + of.getKey()
                  + " of store "
                  + store.name()
                  + " had "
                  + read[of.getKey()]
                  + " rows when it was read first, and then "
                  + of.getValue());
        }
        read[of.getKey()] = of.getValue();
      }
    }
    boolean isShuffled = done.stream().anyMatch(each -> !each.read().isEmpty() && each.infos().isEmpty());
    for (int from = 0; from < read.length; from++) {
      if (read[from] < 0 || (!isShuffled && read[from] != taken[from])) {
        throw new IllegalStateException(
            "Of the "
                + read[from]
                + " rows of partition "
                + from
                + " of store "
                + store.name()
                + ", "
                + taken[from]
                + " were written");
      }
    }
    if (isShuffled && Arrays.stream(read).sum() != moved) {
      throw new IllegalStateException(
          "Of the " + Arrays.stream(read).sum() + " rows of store " + store.name() + ", " + moved + " were written");
    }
    for (int to = 0; to < infos.length; to++) {
      if (infos[to] == null) {
        throw new IllegalStateException("Partition " + to + " of store " + store.name() + " was not written");
      }
    }
    return infos;
  }

  Done write() throws Exception {
    if (store.isSplit()) {
      return split();
    }
    if (store.suitsSortedFiles()) {
      return writeSorted();
    }
    MovedRows rows = new MovedRows(store, store.parents(partitions[0]), partitions);
    StateStoreCheckpointInfo info = writeOne(rows);
    return new Done(store.name(), new ArrayList<>(List.of(info)), rows.read(), rows.taken(), 0);
  }

  /** Writes rows that have been brought together for the only partition. */
  Done write(Iterator<InternalRow> rows) throws IOException {
    long[] count = {0};
    StateStoreCheckpointInfo info =
        writeOne(
            new Iterator<>() {
              @Override
              public boolean hasNext() {
                return rows.hasNext();
              }

              @Override
              public InternalRow next() {
                count[0]++;
                return rows.next();
              }
            });
    return new Done(store.name(), new ArrayList<>(List.of(info)), new HashMap<>(), new HashMap<>(), count[0]);
  }

  private StateStoreCheckpointInfo writeOne(Iterator<InternalRow> rows) throws IOException {
    if (store.isHeap()) {
      return new HeapSnapshot(store, partitions[0]).write(rows);
    }
    return sparksWriter(partitions[0]).write(CollectionConverters.asScala(rows));
  }

  private Done writeSorted() throws Exception {
    Places places = new Places(store);
    Map<Integer, SortedFiles> files = new HashMap<>();
    HashMap<Integer, Long> read = new HashMap<>();
    HashMap<Integer, Long> taken = new HashMap<>();
    try {
      for (int each : partitions) {
        files.put(each, SortedFiles.ofNothing(store, sparksWriter(each)));
      }
      for (int parent : store.parents(partitions[0])) {
        long[] counts = {0, 0};
        try (OldStore.Rows old = store.old().rows(parent)) {
          for (Map.Entry<String, StatePartitionKeyExtractor> family : old.partitionKeys().entrySet()) {
            old.rows()
                .forEach(
                    family.getKey(),
                    (key, bytes, at) -> {
                      int to = store.isSingle() ? 0 : places.ofKey(family.getValue().partitionKey(key), parent);
                      SortedFiles file = files.get(to);
                      counts[0]++;
                      if (file != null) {
                        file.add(family.getKey(), bytes, old.rows(), at);
                        counts[1]++;
                      }
                    });
          }
        }
        read.put(parent, counts[0]);
        taken.put(parent, counts[1]);
      }
      return new Done(store.name(), commit(files), read, taken, 0);
    } finally {
      close(files.values());
    }
  }

  /**
   * Takes out of each partition, which has all rows of the old one, those of the others. The first of them is the old
   * one itself, so it tells what they have. Values are of no interest.
   */
  private Done split() throws Exception {
    int parent = store.parents(partitions[0])[0];
    Option<String> id = store.old().checkpointId(parent);
    Places places = new Places(store);
    Map<Integer, SortedFiles> files = new HashMap<>();
    long[] counts = {0, 0};
    try {
      for (int each : partitions) {
        files.put(each, SortedFiles.ofVersion(store, sparksWriter(each), id));
      }
      for (Map.Entry<String, StatePartitionKeyExtractor> family : store.old().partitionKeys(parent).entrySet()) {
        files
            .get(parent)
            .rows()
            .forEach(
                family.getKey(),
                (key, bytes, at) -> {
                  int to = places.ofKey(family.getValue().partitionKey(key), parent);
                  counts[0]++;
                  for (int each : partitions) {
                    if (each != to) {
                      files.get(each).remove(family.getKey(), bytes);
                    } else {
                      counts[1]++;
                    }
                  }
                });
      }
      return new Done(
          store.name(),
          commit(files),
          new HashMap<>(Map.of(parent, counts[0])),
          new HashMap<>(Map.of(parent, counts[1])),
          0);
    } finally {
      close(files.values());
    }
  }

  private ArrayList<StateStoreCheckpointInfo> commit(Map<Integer, SortedFiles> files) throws Exception {
    ArrayList<StateStoreCheckpointInfo> done = new ArrayList<>();
    for (int each : partitions) {
      done.add(files.get(each).commit());
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
        store.conf(),
        store.hadoop().value(),
        partition,
        store.location(),
        store.operator(),
        store.storeName(),
        store.batch(),
        store.families(),
        store.schemas());
  }
}
