package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.Options.Restore;
import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.ahead.StoresOfTasks;
import io.pyspark.statestore.fs.MergedFileSystem;
import io.pyspark.statestore.rocks.ReadAhead;
import io.pyspark.statestore.tables.EarlyFiles;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The provider door for RocksDB: stock Spark over the merged file system.
 *
 * <p>RocksDB copies SSTs through a Hadoop file system, so its root directory gets the merged scheme. Spark's change
 * feed makes a file manager for the store's plain location, so the configuration merges plain paths, too.
 */
public class MergedRocksDBStateStoreProvider extends MeteredRocksDBProvider {
  /** The package of Spark's readers of state. */
  private static final String READERS = "org.apache.spark.sql.execution.datasources.v2.state.";

  /** Spark calls this by reflection. */
  public MergedRocksDBStateStoreProvider() {
    ShimInfo.checkSpark();
  }

  @Override
  public void init(
      StateStoreId stateStoreId,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keyStateEncoderSpec,
      boolean useColumnFamilies,
      StateStoreConf storeConf,
      Configuration hadoopConf,
      boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> stateSchemaProvider) {
    Configuration conf = ProviderConf.mergingPlainPaths(hadoopConf);
    super.init(
        stateStoreId,
        keySchema,
        valueSchema,
        keyStateEncoderSpec,
        useColumnFamilies,
        storeConf,
        conf,
        useMultipleValuesPerKey,
        stateSchemaProvider);
    figures = new ProgressFigures(stateStoreId, conf);
  }

  /**
   * Whether Spark's reader of state makes the current store. It reads all of a version, which may expire meanwhile: a
   * query that goes on keeps what its newest versions need, and nothing for a reader. So that has whole files.
   */
  private static boolean isOfReader() {
    return StackWalker.getInstance().walk(all -> all.anyMatch(frame -> frame.getClassName().startsWith(READERS)));
  }

  @Override
  void opened(ReadStateStore store) {
    if (rocksDB() instanceof MergedRocksDB database) {
      ReadAhead ahead = database.readAhead();
      if (ahead != null) {
        StoresOfTasks.opened(stateStoreId(), store, ahead, figures::lookedAhead);
      }
    }
  }

  /** What is missing of a store's files when it is loaded; null where they are whole then. */
  private static LazyFiles lazyFiles(Path store, Options options) {
    return switch (options.restore()) {
      case EAGER -> null;
      case LAZY -> new LazyFiles(true, options.restoreMaxBytesPerSecond());
      case ONDEMAND -> new LazyFiles(false, options.restoreMaxBytesPerSecond());
      case REMOTE -> MergedFileSystem.cachedFiles(store, options.localSizeLimit());
    };
  }

  @Override
  public RocksDB createRocksDB(
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
    Path merged = ProviderConf.mergedRoot(dfsRootDir, hadoopConf);
    Configuration withClasses = MergedFileSystem.withClasses(hadoopConf, merged.toUri().getScheme());
    Options options = ProviderConf.options(hadoopConf);
    boolean isReplaceable = MergedRocksDB.canReplaceDatabase() && !isOfReader();
    LazyFiles lazy = isReplaceable ? lazyFiles(merged, options) : null;
    boolean looksAhead = options.lookAheadRows() > 0 && isReplaceable;
    boolean uploads = options.uploadAsCreated() || options.restore() == Restore.REMOTE;
    EarlyFiles early = uploads ? MergedFileSystem.earlyFiles(merged) : null;
    if (lazy != null || early != null || looksAhead) {
      boolean done = false;
      try {
        MergedRocksDB made =
            new MergedRocksDB(
                lazy,
                early,
                looksAhead,
                options.restoreMaxBytesPerSecond(),
                merged.toString(),
                conf,
                localRootDir,
                withClasses,
                loggingId,
                useColumnFamilies,
                enableStateStoreCheckpointIds,
                partitionId,
                eventForwarder,
                uniqueId);
        done = true;
        return made;
      } finally {
        if (!done && lazy != null) {
          lazy.close();
        }
        if (!done && early != null) {
          early.close();
        }
      }
    }
    return super.createRocksDB(
        merged.toString(),
        conf,
        localRootDir,
        withClasses,
        loggingId,
        useColumnFamilies,
        enableStateStoreCheckpointIds,
        partitionId,
        eventForwarder,
        uniqueId);
  }
}
