package io.pyspark.statestore.testing;

import io.pyspark.statestore.spark.Stores;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32C;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.ByteArrayPair;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf$;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import org.rocksdb.FlushOptions;
import scala.Option;
import scala.collection.Iterator;

/** Drives Spark's RocksDB class on one store step by step, without a query, as Spark's suites do. */
public final class RocksDBStore implements AutoCloseable {
  private static final String FAMILY = "default";

  private final RocksDB db;
  private final File local;

  /**
   * Opens a store; nothing is loaded yet.
   *
   * @param directory the store's, with a merged scheme for a merged one: {@code …/state/0/0}
   * @param settings the SQL session's, by their whole keys
   * @param hadoop the settings of Hadoop
   * @param disk where the store has its local files; empty for where Java keeps temporary files
   */
  public RocksDBStore(String directory, Map<String, String> settings, Map<String, String> hadoop, String disk)
      throws IOException {
    SQLConf sql = new SQLConf();
    settings.forEach(sql::setConfString);
    Configuration conf = new Configuration();
    hadoop.forEach(conf::set);
    java.nio.file.Path parent = java.nio.file.Path.of(disk.isEmpty() ? System.getProperty("java.io.tmpdir") : disk);
    local = Files.createTempDirectory(parent, "rocksdb").toFile();
    Path root = new Path(directory);
    db =
        Stores.make(
            root.toString(),
            RocksDBConf$.MODULE$.apply(new StateStoreConf(sql, scala.collection.immutable.Map$.MODULE$.empty())),
            local,
            conf,
            root.getName());
  }

  /** Where the store has its files on this disk. */
  public String local() {
    return local.toString();
  }

  /** Loads a version. */
  public void load(long version) {
    db.load(version, Option.empty(), false, false);
  }

  /** Loads a version that is not going to be written to. */
  public void loadToRead(long version) {
    db.load(version, Option.empty(), true, false);
  }

  /** Puts a row into what is loaded. */
  public void put(String key, String value) {
    db.put(bytes(key), bytes(value), FAMILY, false, false, false);
  }

  /** The value of a key in what is loaded, or null. */
  public String get(String key) {
    byte[] value = db.get(bytes(key), FAMILY);
    return value == null ? null : new String(value, StandardCharsets.UTF_8);
  }

  /** Puts rows into what is loaded, whose values do not compress. */
  public void putMany(int from, int to, int length, long seed) {
    Random random = new Random(seed);
    for (int i = from; i < to; i++) {
      byte[] value = new byte[length];
      random.nextBytes(value);
      db.put(bytes(String.format("key-%06d", i)), value, FAMILY, false, false, false);
    }
  }

  /** Whether a row is there, of those of {@link #putMany}. */
  public boolean has(int row) {
    return db.get(bytes(String.format("key-%06d", row)), FAMILY) != null;
  }

  /** Deletes the rows between two keys. */
  public void deleteRange(String from, String to) {
    db.deleteRange(bytes(from), bytes(to), FAMILY, false, false);
  }

  /** Goes through all rows; returns how many there are and a checksum of them. */
  public String scan() {
    return checksum(db.iterator(FAMILY));
  }

  /** As {@link #scan}, of the rows between two keys. */
  public String scan(String from, String to) {
    return checksum(db.rangeScan(Option.apply(bytes(from)), Option.apply(bytes(to)), FAMILY));
  }

  private static String checksum(Iterator<ByteArrayPair> rows) {
    CRC32C crc = new CRC32C();
    int count = 0;
    while (rows.hasNext()) {
      ByteArrayPair row = rows.next();
      crc.update(row.key());
      crc.update(row.value());
      count++;
    }
    return count + " rows, " + Long.toHexString(crc.getValue());
  }

  /** How many rows Spark counts. */
  public long rows() {
    db.refreshRecordedMetricsForTest();
    return db.metricsOpt().get().numUncommittedKeys();
  }

  /** A number that RocksDB tells of the open database. */
  public long property(String name) throws Exception {
    Method asked = RocksDB.class.getDeclaredMethod("getDBProperty", String.class);
    asked.setAccessible(true);
    return (long) asked.invoke(db, name);
  }

  /** Has RocksDB write what is in memory to an SST, as it does by itself when there is much. */
  public void flush() throws Exception {
    try (FlushOptions options = new FlushOptions()) {
      open().flush(options);
    }
  }

  /** Has RocksDB make one SST of all, as it does by itself when there are many. */
  public void compact() throws Exception {
    open().compactRange();
  }

  private org.rocksdb.RocksDB open() throws Exception {
    Method open = RocksDB.class.getDeclaredMethod("db");
    open.setAccessible(true);
    return (org.rocksdb.RocksDB) open.invoke(db);
  }

  /** Commits the next version. */
  public void commit() {
    db.commit(false);
  }

  /** Commits the next version with its snapshot, as where Spark says that the store lags behind. */
  public void commitWithSnapshot() {
    db.commit(true);
  }

  /** Uploads the snapshots that wait for it, in a thread that is named like Spark's maintenance. */
  public void upload() throws Throwable {
    onMaintenanceThread(db::doSnapshotMaintenance);
  }

  /** Deletes old versions, in a thread that is named like Spark's maintenance. */
  public void cleanUp() throws Throwable {
    onMaintenanceThread(db::doCleanupMaintenance);
  }

  private static void onMaintenanceThread(Runnable action) throws Throwable {
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread thread = new Thread(action, "state-store-maintenance-thread-test");
    thread.setDaemon(true);
    thread.setUncaughtExceptionHandler((t, e) -> failure.set(e));
    thread.start();
    thread.join();
    if (failure.get() != null) {
      throw failure.get();
    }
  }

  /** Forgets what was not committed. The next load starts from the files. */
  public void rollback() {
    db.rollback();
  }

  @Override
  public void close() {
    db.close();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
