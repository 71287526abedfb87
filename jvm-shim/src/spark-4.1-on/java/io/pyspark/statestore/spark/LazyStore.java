package io.pyspark.statestore.spark;

import io.pyspark.statestore.Unchecked;
import io.pyspark.statestore.log.LazyFiles;
import io.pyspark.statestore.log.LazyLoad;
import io.pyspark.statestore.rocks.LazyRocksDB;
import java.io.File;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.RocksDBFileManager;
import org.apache.spark.sql.execution.streaming.state.RocksDBFileMapping;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Spark's RocksDB of one store, opened with the ends of its SSTs. Between the opening and the first read the open
 * database is replaced by a {@link LazyRocksDB}.
 *
 * <p>Why no read comes before that: {@code loadCheckpointFromDfs} is what Spark calls before each opening, and all that
 * Spark then does with a database, also while it replays changelogs, begins with {@code updateMemoryUsageIfNeeded}. Only
 * the counting of keys does not, where a snapshot does not say how many it has; all files are completed then. A test
 * goes through the methods of Spark's class.
 */
final class LazyStore extends RocksDB {
  private static final Logger LOG = LoggerFactory.getLogger(LazyStore.class);
  /** The open database of Spark's class; null where this Spark has no such field. */
  private static final VarHandle DB = findDatabase();

  private final LazyFiles files;
  /** Whether the next database that is opened has holes. */
  private volatile boolean opensLazily;
  private LazyRocksDB open;

  LazyStore(
      LazyFiles files,
      String dfsRootDir,
      RocksDBConf conf,
      File localRootDir,
      Configuration hadoopConf,
      String loggingId,
      boolean useColumnFamilies,
      boolean enableStateStoreCheckpointIds,
      int partitionId,
      Option<RocksDBEventForwarder> eventForwarder,
      Option<String> uniqueId) {
    super(
        dfsRootDir,
        conf,
        localRootDir,
        hadoopConf,
        loggingId,
        useColumnFamilies,
        enableStateStoreCheckpointIds,
        partitionId,
        eventForwarder,
        uniqueId);
    this.files = files;
  }

  private static VarHandle findDatabase() {
    try {
      return MethodHandles.privateLookupIn(RocksDB.class, MethodHandles.lookup())
          .findVarHandle(RocksDB.class, "db", org.rocksdb.RocksDB.class);
    } catch (ReflectiveOperationException e) {
      LOG.warn("Stores are not loaded lazily: Spark's RocksDB class has no field db", e);
      return null;
    }
  }

  /** Whether this Spark's class can be used so. */
  static boolean isPossible() {
    return DB != null;
  }

  /** Called while Spark's class is made. */
  @Override
  public RocksDBFileManager createFileManager(
      String dfsRootDir,
      File localTempDir,
      Configuration hadoopConf,
      String codecName,
      String loggingId,
      StateStoreConf storeConf) {
    return new RocksDBFileManager(
        dfsRootDir,
        localTempDir,
        hadoopConf,
        codecName,
        loggingId,
        storeConf,
        conf().fileChecksumEnabled(),
        fileChecksumThreadPoolSize()) {
      @Override
      public RocksDBCheckpointMetadata loadCheckpointFromDfs(
          long version, File localDir, RocksDBFileMapping mapping, Option<String> checkpointId) {
        opensLazily = false;
        open = null;
        RocksDBCheckpointMetadata metadata;
        LazyLoad load = LazyLoad.begin(files);
        try {
          metadata = super.loadCheckpointFromDfs(version, localDir, mapping, checkpointId);
        } finally {
          load.close();
        }
        loaded(localDir, metadata);
        return metadata;
      }
    };
  }

  /** A version's files are in place, and its database is about to be opened. */
  private void loaded(File localDir, RocksDBCheckpointMetadata metadata) {
    try {
      files.loaded(localDir.toPath(), localRootDir().toPath());
      if (conf().trackTotalNumberOfRows() && metadata.numKeys() < 0) {
        files.awaitWhole();
      }
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
    // A compaction could begin as soon as the database is open.
    opensLazily = !files.isWhole();
    rocksDbOptions().setDisableAutoCompactions(opensLazily);
  }

  /** Spark does this first, whatever it does with its database. */
  @Override
  public void updateMemoryUsageIfNeeded() {
    if (opensLazily) {
      replaceDatabase();
    }
    if (open != null) {
      open.compactWhenWhole();
    }
    super.updateMemoryUsageIfNeeded();
  }

  private void replaceDatabase() {
    org.rocksdb.RocksDB opened = (org.rocksdb.RocksDB) DB.getVolatile(this);
    if (opened != null) {
      open = new LazyRocksDB(opened, files);
      DB.setVolatile(this, open);
      opensLazily = false;
    }
  }

  @Override
  public void close() {
    super.close();
    files.close();
  }
}
