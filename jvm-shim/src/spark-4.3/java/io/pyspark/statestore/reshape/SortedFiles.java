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
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
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
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.SstFileWriter;
import scala.Option;
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
 *
 * <p>A partition that is split off another one begins with all of its rows, and gets one file that deletes those of the
 * others. What it began with is not written again.
 */
final class SortedFiles implements AutoCloseable {
  private final RocksDBStateStoreProvider provider;
  private final StateStore state;
  private final RocksDB rocks;
  private final boolean isNew;
  private final Map<String, Family> families = new HashMap<>();
  private final File local;
  private final List<String> files = new ArrayList<>();
  private final EnvOptions env = new EnvOptions();
  private final SstFileWriter file;
  private String current;
  private UTF8String currentBytes;
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

  /** Opens the version of a partition that is written on. */
  private interface Opening {
    StateStore open(RocksDBStateStoreProvider provider) throws ReflectiveOperationException;
  }

  private SortedFiles(
      StoreRewrite store, StatePartitionAllColumnFamiliesWriter writer, boolean isNew, Opening opening)
      throws ReflectiveOperationException, IOException {
    this.isNew = isNew;
    provider = (RocksDBStateStoreProvider) writer.provider();
    boolean isOpen = false;
    try {
      state = opening.open(provider);
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
    return new SortedFiles(store, writer, false, provider -> {
      // It would write anew what the version has already.
      provider.rocksDB().rocksDbOptions().setDisableAutoCompactions(true);
      StateStore state = provider.getStore(store.batch(), id, false, false);
      // As Spark's writer does for an empty version: that is how a store learns of its encoders.
      CollectionConverters.asJava(store.families()).forEach((name, info) -> {
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

  /** Whether a store can be written like this: it has rows in the order of their keys, and one value for each key. */
  static boolean suit(StoreRewrite store) {
    return store.old().isSorted()
        && !store.isHeap()
        && CollectionConverters.asJava(store.families()).values().stream()
            .noneMatch(StatePartitionWriterColumnFamilyInfo::useMultipleValuesPerKey);
  }

  /** Adds a row, as Spark's reader gives it. */
  void add(InternalRow row) throws RocksDBException {
    byte[] key = key(row);
    byte[] value = family.values.encodeValue(MovedRows.unsafe(row.getBinary(2), family.valueColumns));
    if (rocks.conf().rowChecksumEnabled()) {
      value =
          KeyValueChecksumEncoder.encodeValueRowWithChecksum(value, KeyValueChecksum.create(key, Some.apply(value)));
    }
    byte[] prefixed = join(family.prefix, key);
    beginFile(prefixed);
    file.put(prefixed, value);
    count(1);
  }

  /** Does something with a key. */
  interface KeyVisitor {
    /**
     * @param row the key, as Spark decodes it
     * @param key its bytes in RocksDB
     */
    void visit(UnsafeRow row, byte[] key) throws RocksDBException;
  }

  /**
   * Visits the keys of a column family that the store began with. Spark's iterator would copy all values, which takes as
   * long as everything else.
   */
  void forEachKey(String familyName, KeyVisitor visitor) throws ReflectiveOperationException, RocksDBException {
    Family found = families.get(familyName);
    try (ReadOptions once = new ReadOptions().setFillCache(false); RocksIterator at = db().newIterator(once)) {
      for (at.seek(found.prefix); at.isValid(); at.next()) {
        byte[] key = at.key();
        if (!startsWith(key, found.prefix)) {
          break;
        }
        visitor.visit(found.keys.decodeKey(Arrays.copyOfRange(key, found.prefix.length, key.length)), key);
      }
      at.status();
    }
  }

  /** Takes the row of a key out that is there. */
  void remove(String familyName, byte[] key) throws RocksDBException {
    if (!familyName.equals(current)) {
      know(familyName);
    }
    beginFile(key);
    file.delete(key);
    count(-1);
  }

  /** The key of a row as Spark's encoder makes it. */
  private byte[] key(InternalRow row) {
    UTF8String name = row.getUTF8String(3);
    if (!name.equals(currentBytes)) {
      know(name.toString());
      currentBytes = name.clone();
    }
    return family.keys.encodeKey(MovedRows.unsafe(row.getBinary(1), family.keyColumns));
  }

  private void know(String familyName) {
    current = familyName;
    family = families.get(familyName);
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
          name,
          new Family(
              prefix,
              encoders.get(name)._1(),
              encoders.get(name)._2(),
              each.getValue().schema().keySchema().length(),
              each.getValue().schema().valueSchema().length(),
              usesFamilies && StateStoreColumnFamilySchemaUtils.isInternalColFamily(name)));
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
    org.rocksdb.RocksDB db = db();
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

  private org.rocksdb.RocksDB db() throws ReflectiveOperationException {
    return (org.rocksdb.RocksDB) new Internals(rocks).call("db");
  }

  private void add(String count, long change) throws ReflectiveOperationException {
    Internals counts = new Internals(rocks);
    counts.set(count, change + (isNew ? 0 : (Long) counts.get(count)));
  }

  private static boolean startsWith(byte[] key, byte[] prefix) {
    return key.length >= prefix.length && Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length);
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
