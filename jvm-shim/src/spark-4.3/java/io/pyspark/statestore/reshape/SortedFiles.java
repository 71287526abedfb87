package io.pyspark.statestore.reshape;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.StateStoreColumnFamilySchemaUtils;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.util.Utils;
import org.rocksdb.EnvOptions;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.SstFileWriter;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes a partition of a RocksDB store as sorted files, which RocksDB then takes in as they are.
 *
 * <p>Spark's own writer puts one row after the other: RocksDB looks each key up for Spark's count of rows, sorts what
 * it has sorted before, and compacts what it has flushed. Rows of an old partition come in the order of their keys
 * already, so each column family of each old partition becomes one file. Where several old partitions go into one,
 * RocksDB merges their files once they are as many as it would merge by itself. Spark's writer still makes the store
 * and its column families. Keys and values are what Spark has made of them when it wrote them ({@link SortedRows}), but
 * for the bytes that say the column family, and for row checksums, which cover these bytes.
 *
 * <p>A partition that is split off another one begins with all of its rows, and gets one file that deletes those of the
 * others. What it began with is not written again.
 */
final class SortedFiles implements AutoCloseable {
  private final RocksDBStateStoreProvider provider;
  private final StateStore state;
  private final RocksDB rocks;
  private final SortedRows stored;
  private final boolean isNew;
  private final Map<String, Family> families = new HashMap<>();
  private final File local;
  private final List<String> files = new ArrayList<>();
  private final EnvOptions env = new EnvOptions();
  private final SstFileWriter file;
  private String current;
  private Family family;
  private byte[] last;
  private long rows;
  private long internalRows;

  /** A column family: the bytes before its keys, and whether Spark counts its rows apart. */
  private record Family(byte[] prefix, boolean isInternal) {}

  /** Opens the version of a partition that is written on. */
  private interface Opening {
    StateStore open(RocksDBStateStoreProvider provider) throws ReflectiveOperationException;
  }

  private SortedFiles(StoreRewrite store, StatePartitionAllColumnFamiliesWriter writer, boolean isNew, Opening opening)
      throws ReflectiveOperationException, IOException {
    this.isNew = isNew;
    provider = (RocksDBStateStoreProvider) writer.provider();
    boolean isOpen = false;
    try {
      state = opening.open(provider);
      rocks = provider.rocksDB();
      boolean usesFamilies = (Boolean) new Internals(writer).call("useColumnFamilies");
      stored = new SortedRows(provider, usesFamilies);
      knowFamilies(store, usesFamilies);
      local = Files.createTempDirectory(Path.of(Utils.getLocalDir(SparkEnv.get().conf())), "reshape").toFile();
      isOpen = true;
    } finally {
      if (!isOpen) {
        provider.close();
      }
    }
    file = new SstFileWriter(env, rocks.rocksDbOptions());
  }

  /**
   * Begins with an empty version of a partition.
   *
   * @param store the store
   * @param writer Spark's writer of the partition, which has written nothing
   */
  static SortedFiles ofNothing(StoreRewrite store, StatePartitionAllColumnFamiliesWriter writer)
      throws ReflectiveOperationException, IOException {
    return new SortedFiles(store, writer, true, provider -> (StateStore) new Internals(writer).call("stateStore"));
  }

  /**
   * Begins with the version that a partition has.
   *
   * @param store the store
   * @param writer Spark's writer of the partition, which has written nothing
   * @param id of the version, in Spark's checkpoint format 2
   */
  static SortedFiles ofVersion(StoreRewrite store, StatePartitionAllColumnFamiliesWriter writer, Option<String> id)
      throws ReflectiveOperationException, IOException {
    return new SortedFiles(
        store,
        writer,
        false,
        provider -> {
          // It would write anew what the version has already.
          provider.rocksDB().rocksDbOptions().setDisableAutoCompactions(true);
          StateStore state = provider.getStore(store.batch(), id, false, false);
          // As Spark's writer does for an empty version: that is how a store learns of its encoders.
          CollectionConverters.asJava(store.families())
              .forEach(
                  (name, info) -> {
                    if (!name.equals(StoreRewrite.DEFAULT_FAMILY)) {
                      state.createColFamilyIfAbsent(
                          name,
                          info.schema().keySchema(),
                          info.schema().valueSchema(),
                          info.schema().keyStateEncoderSpec().get(),
                          info.useMultipleValuesPerKey(),
                          StateStoreColumnFamilySchemaUtils.isInternalColFamily(name));
                    }
                  });
          return state;
        });
  }

  /** The rows that the store began with. */
  SortedRows rows() {
    return stored;
  }

  /**
   * Adds a row of another store, whose keys and values are encoded in the same way.
   *
   * @param key without the bytes that say the column family
   * @param from the other store
   * @param at the row there
   */
  void add(String familyName, byte[] key, SortedRows from, RocksIterator at) throws RocksDBException {
    byte[] prefixed = prefixed(familyName, key);
    beginFile(prefixed);
    file.put(prefixed, from.valueFor(prefixed, at));
    count(1);
  }

  /** Takes the row of a key out that is there. */
  void remove(String familyName, byte[] key) throws RocksDBException {
    byte[] prefixed = prefixed(familyName, key);
    beginFile(prefixed);
    file.delete(prefixed);
    count(-1);
  }

  /** A key with the bytes before it that say the column family, which is the current one from then on. */
  private byte[] prefixed(String familyName, byte[] key) {
    if (!familyName.equals(current)) {
      current = familyName;
      family = families.get(familyName);
    }
    byte[] prefix = family.prefix;
    if (prefix.length == 0) {
      return key;
    }
    byte[] joined = Arrays.copyOf(prefix, prefix.length + key.length);
    System.arraycopy(key, 0, joined, prefix.length, key.length);
    return joined;
  }

  private void count(int change) {
    rows += family.isInternal ? 0 : change;
    internalRows += family.isInternal ? change : 0;
  }

  /** Makes all rows the version that the store is to have. */
  StateStoreCheckpointInfo commit() throws ReflectiveOperationException, RocksDBException {
    takeIn();
    state.commit();
    StateStoreCheckpointInfo info = state.getStateStoreCheckpointInfo();
    // Spark insists that nothing is before such a version. It is a snapshot, so nothing is needed from before.
    return new StateStoreCheckpointInfo(
        info.partitionId(), info.batchVersion(), info.stateStoreCkptId(), Option.empty());
  }

  /** Gives up what is not committed, and all that is on the local disk. */
  @Override
  public void close() {
    file.close();
    env.close();
    if (!state.hasCommitted()) {
      state.abort();
    }
    provider.close();
    // Spark would start a process for it.
    for (String each : files) {
      new File(each).delete();
    }
    local.delete();
  }

  private void knowFamilies(StoreRewrite store, boolean usesFamilies) throws ReflectiveOperationException {
    for (String name : CollectionConverters.asJava(store.families()).keySet()) {
      boolean isInternal = usesFamilies && StateStoreColumnFamilySchemaUtils.isInternalColFamily(name);
      families.put(name, new Family(stored.prefix(name), isInternal));
    }
  }

  /** Begins another file where the next key does not come after the last one. */
  private void beginFile(byte[] key) throws RocksDBException {
    if (last == null || Arrays.compareUnsigned(last, key) >= 0) {
      // The next old partition begins, or the next column family has a smaller number.
      if (last != null) {
        file.finish();
      }
      String path = new File(local, files.size() + ".sst").getPath();
      file.open(path);
      files.add(path);
    }
    last = key;
  }

  private void takeIn() throws ReflectiveOperationException, RocksDBException {
    if (files.isEmpty()) {
      return;
    }
    file.finish();
    org.rocksdb.RocksDB db = stored.db();
    try (IngestExternalFileOptions options = new IngestExternalFileOptions()) {
      options.setMoveFiles(true);
      for (String each : files) {
        db.ingestExternalFile(List.of(each), options);
      }
    }
    if (isNew && files.size() >= rocks.rocksDbOptions().level0FileNumCompactionTrigger()) {
      db.compactRange();
    }
    if (rocks.conf().trackTotalNumberOfRows()) {
      add("numKeysOnWritingVersion", rows);
      add("numInternalKeysOnWritingVersion", internalRows);
    }
  }

  private void add(String count, long change) throws ReflectiveOperationException {
    Internals counts = new Internals(rocks);
    counts.set(count, change + (isNew ? 0 : (Long) counts.get(count)));
  }
}
