package io.pyspark.statestore.heap;

import io.pyspark.statestore.log.MergedLogs;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.IntUnaryOperator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;

/** Drives a provider of heap stores, ours or Spark's, step by step and without a query, as Spark's suites do. */
public final class HeapStore implements AutoCloseable {
  private static final String FAMILY = "default";

  private final HDFSBackedStateStoreProvider provider;
  private final Path state;
  private StateStore store;

  /**
   * Opens the store of operator 0 and partition 0; nothing is loaded yet.
   *
   * @param providerClass the full name of its class
   * @param state the {@code state} directory of a checkpoint
   * @param settings the SQL session's, by their whole keys
   * @param hadoop the settings of Hadoop
   */
  public HeapStore(
      String providerClass, String state, boolean hasPrefix, Map<String, String> settings, Map<String, String> hadoop) {
    this.state = new Path(state.replaceFirst("^merged\\+", ""));
    SQLConf sql = new SQLConf();
    settings.forEach(sql::setConfString);
    Configuration conf = new Configuration();
    hadoop.forEach(conf::set);
    conf.set("sql.streaming.runId", UUID.randomUUID().toString());
    KeyStateEncoderSpec keys =
        hasPrefix
            ? new PrefixKeyScanStateEncoderSpec(HeapModel.KEYS, 1)
            : new NoPrefixKeyStateEncoderSpec(HeapModel.KEYS);
    provider = (HDFSBackedStateStoreProvider) StateStoreProvider.create(providerClass);
    provider.init(
        new StateStoreId(state, 0L, 0, "default"),
        HeapModel.KEYS,
        HeapModel.VALUES,
        keys,
        false,
        new StateStoreConf(sql, scala.collection.immutable.Map$.MODULE$.empty()),
        conf,
        false,
        Option.empty());
  }

  /** Begins to write the version after this one. */
  public void load(long version) {
    store = provider.getStore(version, Option.empty(), false, false);
  }

  /** As {@link #load}; the commit will also write a snapshot. */
  public void loadForcingSnapshot(long version) {
    store = provider.getStore(version, Option.empty(), true, false);
  }

  public void put(Integer group, String name, int length, int seed) {
    store.put(HeapModel.key(group, name), HeapModel.value(length, seed), FAMILY);
  }

  public void remove(Integer group, String name) {
    store.remove(HeapModel.key(group, name), FAMILY);
  }

  public long commit() {
    return store.commit();
  }

  public void abort() {
    store.abort();
  }

  /** Drops the reference to the version that was being written. */
  public void forgetWriting() {
    store = null;
  }

  /** The rows of the version that is being written. */
  public Map<String, Integer> writing() {
    return content(store.iterator(FAMILY));
  }

  /** All rows of a version: the hash of each value by its key. */
  public Map<String, Integer> read(long version) {
    ReadStateStore read = provider.getReadStore(version, Option.empty());
    try {
      return content(read.iterator(FAMILY));
    } finally {
      read.release();
    }
  }

  /** The rows of a version that a prefix scan finds. */
  public Map<String, Integer> scan(long version, Integer group) {
    ReadStateStore read = provider.getReadStore(version, Option.empty());
    try {
      return content(read.prefixScan(HeapModel.group(group), FAMILY));
    } finally {
      read.release();
    }
  }

  /**
   * Goes through the rows of a version, of which each has to have the value that is expected of its key.
   *
   * @param seeds by the number in a key's name, the seed of its value
   * @return how many rows there are, no key twice
   */
  public int count(long version, IntUnaryOperator seeds, int length) {
    ReadStateStore read = provider.getReadStore(version, Option.empty());
    BitSet found = new BitSet();
    try {
      scala.collection.Iterator<UnsafeRowPair> rows = read.iterator(FAMILY);
      while (rows.hasNext()) {
        UnsafeRowPair pair = rows.next();
        int key = Integer.parseInt(pair.key().getUTF8String(1).toString().substring(1));
        boolean isRight = pair.value().equals(HeapModel.value(length, seeds.applyAsInt(key)));
        if (found.get(key) || !isRight) {
          throw new AssertionError("k" + key + (isRight ? " comes twice" : " has another value"));
        }
        found.set(key);
      }
    } finally {
      read.release();
    }
    return found.cardinality();
  }

  private static Map<String, Integer> content(scala.collection.Iterator<UnsafeRowPair> rows) {
    Map<String, Integer> found = new TreeMap<>();
    while (rows.hasNext()) {
      UnsafeRowPair pair = rows.next();
      String key = (pair.key().isNullAt(0) ? "null" : pair.key().getInt(0)) + "/" + pair.key().getUTF8String(1);
      if (found.put(key, pair.value().hashCode()) != null) {
        throw new AssertionError("a key comes twice: " + key);
      }
    }
    return found;
  }

  /** The versions in memory, newest first. */
  public List<Long> loaded() {
    List<Long> versions = new ArrayList<>();
    provider.getLoadedMaps().keySet().forEach(version -> versions.add((Long) version));
    return versions;
  }

  /** Bytes of memory that Spark's metric reports. */
  public long memoryUsed() {
    return (Long) provider.getMetricsForProvider().apply("memoryUsedBytes");
  }

  /** The counts of the checkpoint's merged log. */
  public Map<String, Long> logMetrics() throws IOException {
    return MergedLogs.open(state).metrics().snapshot();
  }

  /** Bytes of this JVM's heap that are in use after a garbage collection. */
  public static long usedHeap() {
    for (int each = 0; each < 3; each++) {
      System.gc();
    }
    return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
  }

  public String mapClass() {
    return provider.getLoadedMaps().values().iterator().next().getClass().getSimpleName();
  }

  /** Starts maintenance, in a thread that is named like Spark's. */
  public Thread maintain() {
    Thread thread = new Thread(provider::doMaintenance, "state-store-maintenance-thread-test");
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /**
   * Times batches of a streaming aggregation: each gets a store to read and one to write, and commits.
   *
   * @param version the version before the first batch
   * @param keys the number of keys that there are: k0 to k(keys - 1)
   * @param updates the rows that a batch changes
   * @return for each batch, the nanoseconds to obtain both stores, of the whole batch, and of the gets
   */
  public long[][] batches(long version, int keys, int updates, int batches) {
    long[][] times = new long[batches][];
    for (int batch = 0; batch < batches; batch++) {
      List<UnsafeRow> some = new ArrayList<>();
      for (int each = 0; each < updates; each++) {
        some.add(HeapModel.key(0, "k" + (int) (((batch * 7919L + each) * 104_729L) % keys)));
      }
      UnsafeRow value = HeapModel.value(8, batch);
      long begin = System.nanoTime();
      ReadStateStore read = provider.getReadStore(version + batch, Option.empty());
      store = provider.getStore(version + batch, Option.empty(), false, false);
      long obtained = System.nanoTime();
      for (UnsafeRow key : some) {
        if (read.get(key, FAMILY) == null) {
          throw new AssertionError("there is no " + key);
        }
      }
      long got = System.nanoTime();
      for (UnsafeRow key : some) {
        store.put(key, value, FAMILY);
      }
      store.commit();
      times[batch] = new long[] {obtained - begin, System.nanoTime() - begin, got - obtained};
      read.release();
    }
    return times;
  }

  /**
   * Times batches of a streaming aggregation of which nine in ten updates are of one key in ten: each gets a store to
   * read and one to write, reads and writes each key, and commits.
   *
   * @param version the version before the first batch
   * @param keys the number of keys that there are
   * @param updates the rows that a batch changes
   * @return the nanoseconds of each batch
   */
  public long[] skewedBatches(long version, int keys, int updates, int batches) {
    long[] times = new long[batches];
    Random random = new Random(version);
    for (int batch = 0; batch < batches; batch++) {
      List<UnsafeRow> some = new ArrayList<>();
      for (int each = 0; each < updates; each++) {
        some.add(HeapModel.key(0, "k" + random.nextInt(random.nextInt(10) == 0 ? keys : keys / 10)));
      }
      UnsafeRow value = HeapModel.value(8, batch);
      long begin = System.nanoTime();
      ReadStateStore read = provider.getReadStore(version + batch, Option.empty());
      store = provider.getStore(version + batch, Option.empty(), false, false);
      for (UnsafeRow key : some) {
        if (read.get(key, FAMILY) == null) {
          throw new AssertionError("there is no " + key);
        }
        store.put(key, value, FAMILY);
      }
      store.commit();
      memoryUsed();
      times[batch] = System.nanoTime() - begin;
      read.release();
    }
    return times;
  }

  /** Puts some of the keys that {@link #fill} puts into the version that is being written. */
  public void fill(int from, int to) {
    for (int each = from; each < to; each++) {
      put(0, "k" + each, 8, each);
    }
  }

  /** Bytes of heap of all stores of this process that may spill, as they are told to who watches memory. */
  public long heapBytes() {
    return HeapSpillMonitor.stores().stream().mapToLong(HeapSpill::heapBytes).sum();
  }

  /** The figures of rows on the local disk: bytes there, and reads so far. */
  public long[] spilled() {
    return new long[] {HeapSpillMonitor.spilledBytes(), HeapSpillMonitor.fileBytes(), HeapSpillMonitor.reads()};
  }

  /** Puts so many rows into the version that is being written. */
  public void fill(int keys) {
    for (int each = 0; each < keys; each++) {
      put(0, "k" + each, 8, each);
    }
  }

  /** As {@link #fill}, with so many keys for each prefix. */
  public void fillGroups(int keys, int perGroup) {
    for (int each = 0; each < keys; each++) {
      put(each / perGroup, "k" + each, 8, each);
    }
  }

  /** Times some prefix scans of a version, in nanoseconds. */
  public long prefixScans(long version, int keys, int perGroup, int scans) {
    ReadStateStore read = provider.getReadStore(version, Option.empty());
    List<UnsafeRow> prefixes = new ArrayList<>();
    for (int each = 0; each < scans; each++) {
      prefixes.add(HeapModel.group((int) (each * 104_729L % (keys / perGroup))));
    }
    long begin = System.nanoTime();
    long rows = 0;
    for (UnsafeRow prefix : prefixes) {
      scala.collection.Iterator<UnsafeRowPair> found = read.prefixScan(prefix, FAMILY);
      while (found.hasNext()) {
        rows += found.next().value().getSizeInBytes() > 0 ? 1 : 0;
      }
    }
    long took = System.nanoTime() - begin;
    read.release();
    if (rows != (long) scans * perGroup) {
      throw new AssertionError(scans + " prefix scans gave " + rows + " rows");
    }
    return took;
  }

  /** Times iterations over a version's rows, in nanoseconds, without the time to obtain the store. */
  public long[] scans(long version, int times) {
    long[] took = new long[times];
    for (int each = 0; each < times; each++) {
      ReadStateStore read = provider.getReadStore(version, Option.empty());
      long begin = System.nanoTime();
      long sum = 0;
      scala.collection.Iterator<UnsafeRowPair> rows = read.iterator(FAMILY);
      while (rows.hasNext()) {
        UnsafeRowPair pair = rows.next();
        sum += pair.key().getSizeInBytes() + pair.value().getSizeInBytes();
      }
      took[each] = sum == 0 ? -1 : System.nanoTime() - begin;
      read.release();
    }
    return took;
  }

  /** Times gets of keys that exist, in nanoseconds. */
  public long[] gets(long version, int keys, int gets, int times) {
    ReadStateStore read = provider.getReadStore(version, Option.empty());
    long[] took = new long[times];
    for (int each = 0; each < times; each++) {
      List<UnsafeRow> some = new ArrayList<>();
      for (int one = 0; one < gets; one++) {
        some.add(HeapModel.key(0, "k" + (int) (((each * 7919L + one) * 104_729L) % keys)));
      }
      long begin = System.nanoTime();
      for (UnsafeRow key : some) {
        if (read.get(key, FAMILY) == null) {
          throw new AssertionError("there is no " + key);
        }
      }
      took[each] = System.nanoTime() - begin;
    }
    read.release();
    return took;
  }

  /** Closes the store, and drops its rows even if a caller keeps this object. */
  @Override
  public void close() {
    store = null;
    provider.close();
  }
}
