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
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.StateStoreColumnFamilySchemaUtils;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksum;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksumEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.execution.streaming.state.StatePartitionAllColumnFamiliesWriter;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.Utils;
import org.rocksdb.EnvOptions;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.RocksDBException;
import org.rocksdb.SstFileWriter;
import scala.Some;
import scala.Tuple3;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes a partition of a RocksDB store as sorted files, which RocksDB then takes in as they are.
 *
 * <p>Spark's own writer puts one row after the other: RocksDB looks each key up for Spark's count of rows, sorts what it
 * has sorted before, and compacts what it has flushed. Rows of an old partition come in the order of their keys already,
 * so each column family of each old partition becomes one file. Where several old partitions go into one, RocksDB merges
 * their files once they are as many as it would merge by itself. Spark's writer still makes the store and its column
 * families, and its encoders make the bytes.
 */
final class SortedFiles implements AutoCloseable {
  private final RocksDBStateStoreProvider provider;
  private final StateStore state;
  private final RocksDB rocks;
  private final Map<UTF8String, Family> families = new HashMap<>();
  private final File local;
  private final List<String> files = new ArrayList<>();
  private final EnvOptions env = new EnvOptions();
  private final SstFileWriter file;
  private UTF8String current;
  private Family family;
  private byte[] last;
  private long rows;
  private long internalRows;

  /** What Spark does with the rows of a column family: the bytes before its keys, and its encoders. */
  private record Family(
      byte[] prefix,
      RocksDBKeyStateEncoder keys,
      RocksDBValueStateEncoder values,
      int keyColumns,
      int valueColumns,
      boolean isInternal) {}

  /**
   * Begins with an empty version of a partition.
   *
   * @param store the store
   * @param writer Spark's writer of the partition, which has written nothing
   */
  SortedFiles(StoreRewrite store, StatePartitionAllColumnFamiliesWriter writer)
      throws ReflectiveOperationException, IOException {
    provider = (RocksDBStateStoreProvider) writer.provider();
    boolean isOpen = false;
    try {
      state = (StateStore) new Internals(writer).call("stateStore");
      rocks = provider.rocksDB();
      knowFamilies(store, writer);
      local = Files.createTempDirectory(Path.of(Utils.getLocalDir(SparkEnv.get().conf())), "reshape").toFile();
      isOpen = true;
    } finally {
      if (!isOpen) {
        provider.close();
      }
    }
    file = new SstFileWriter(env, rocks.rocksDbOptions());
  }

  /** Whether a store can be written like this: it has rows in the order of their keys, and one value for each key. */
  static boolean suit(StoreRewrite store) {
    return store.old().isSorted()
        && !store.isHeap()
        && CollectionConverters.asJava(store.families()).values().stream()
            .noneMatch(StatePartitionWriterColumnFamilyInfo::useMultipleValuesPerKey);
  }

  /** Adds a row, as Spark's reader gives it. */
  void add(InternalRow row) throws RocksDBException {
    UTF8String name = row.getUTF8String(3);
    if (!name.equals(current)) {
      current = name.clone();
      family = families.get(current);
    }
    byte[] key = family.keys.encodeKey(MovedRows.unsafe(row.getBinary(1), family.keyColumns));
    byte[] value = family.values.encodeValue(MovedRows.unsafe(row.getBinary(2), family.valueColumns));
    if (rocks.conf().rowChecksumEnabled()) {
      value =
          KeyValueChecksumEncoder.encodeValueRowWithChecksum(value, KeyValueChecksum.create(key, Some.apply(value)));
    }
    put(join(family.prefix, key), value);
    rows += family.isInternal ? 0 : 1;
    internalRows += family.isInternal ? 1 : 0;
  }

  /** Makes all rows the version that the store is to have. */
  StateStoreCheckpointInfo commit() throws ReflectiveOperationException, RocksDBException {
    takeIn();
    state.commit();
    return state.getStateStoreCheckpointInfo();
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

  @SuppressWarnings("unchecked")
  private void knowFamilies(StoreRewrite store, StatePartitionAllColumnFamiliesWriter writer) throws ReflectiveOperationException {
    boolean usesFamilies = (Boolean) new Internals(writer).call("useColumnFamilies");
    Map<String, Tuple3<RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Object>> encoders =
        (Map<String, Tuple3<RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Object>>) new Internals(provider)
            .get(RocksDBStateStoreProvider.class.getName().replace('.', '$') + "$$keyValueEncoderMap");
    Map<String, StatePartitionWriterColumnFamilyInfo> infos =
        CollectionConverters.asJava(store.families());
    for (Map.Entry<String, StatePartitionWriterColumnFamilyInfo> each : infos.entrySet()) {
      String name = each.getKey();
      byte[] prefix =
          usesFamilies ? (byte[]) new Internals(rocks).call("encodeStateRowWithPrefix", new byte[0], name) : new byte[0];
      families.put(
          UTF8String.fromString(name),
          new Family(
              prefix,
              encoders.get(name)._1(),
              encoders.get(name)._2(),
              each.getValue().schema().keySchema().length(),
              each.getValue().schema().valueSchema().length(),
              usesFamilies && StateStoreColumnFamilySchemaUtils.isInternalColFamily(name)));
    }
  }

  private void put(byte[] key, byte[] value) throws RocksDBException {
    if (last == null || Arrays.compareUnsigned(last, key) >= 0) {
      // The next old partition begins, or the next column family has a smaller number.
      if (last != null) {
        file.finish();
      }
      String path = new File(local, files.size() + ".sst").getPath();
      file.open(path);
      files.add(path);
    }
    file.put(key, value);
    last = key;
  }

  private void takeIn() throws ReflectiveOperationException, RocksDBException {
    if (files.isEmpty()) {
      return;
    }
    file.finish();
    org.rocksdb.RocksDB db = (org.rocksdb.RocksDB) new Internals(rocks).call("db");
    try (IngestExternalFileOptions options = new IngestExternalFileOptions()) {
      options.setMoveFiles(true);
      for (String each : files) {
        db.ingestExternalFile(List.of(each), options);
      }
    }
    if (files.size() >= rocks.rocksDbOptions().level0FileNumCompactionTrigger()) {
      db.compactRange();
    }
    if (rocks.conf().trackTotalNumberOfRows()) {
      new Internals(rocks).set("numKeysOnWritingVersion", rows);
      new Internals(rocks).set("numInternalKeysOnWritingVersion", internalRows);
    }
  }

  private static byte[] join(byte[] prefix, byte[] key) {
    if (prefix.length == 0) {
      return key;
    }
    byte[] joined = Arrays.copyOf(prefix, prefix.length + key.length);
    System.arraycopy(key, 0, joined, prefix.length, key.length);
    return joined;
  }
}
