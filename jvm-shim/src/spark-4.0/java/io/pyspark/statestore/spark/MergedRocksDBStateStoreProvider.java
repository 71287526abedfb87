package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.fs.MergedFileSystem;
import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf$;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.Utils;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * The provider door for RocksDB: stock Spark over the merged file system.
 *
 * <p>RocksDB copies SSTs through a Hadoop file system, so its root directory gets the merged scheme. Spark has no
 * method that makes the RocksDB of a store, so this class makes it as Spark does. Spark's change feed makes a file
 * manager for the store's plain location, so the configuration merges plain paths, too.
 */
public class MergedRocksDBStateStoreProvider extends RocksDBStateStoreProvider {
  private StateStoreConf storeConf;
  private Configuration conf;
  private boolean useColumnFamilies;
  private RocksDB rocksDB;
  private ProgressFigures figures;

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
    this.storeConf = storeConf;
    this.conf = ProviderConf.mergingPlainPaths(hadoopConf);
    this.useColumnFamilies = useColumnFamilies;
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

  @Override
  public StateStore getStore(long version, Option<String> uniqueId) {
    return figures.metered(super.getStore(version, uniqueId));
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return ProgressFigures.addedTo(super.supportedCustomMetrics().toList());
  }

  /** In Scala a lazy value, by which Spark reaches the store everywhere. */
  @Override
  public synchronized RocksDB rocksDB() {
    if (rocksDB == null) {
      StateStoreId id = stateStoreId();
      String name =
          "StateStoreId(opId=" + id.operatorId() + ",partId=" + id.partitionId() + ",name=" + id.storeName() + ")";
      SparkConf sparkConf = SparkEnv.get() == null ? new SparkConf() : SparkEnv.get().conf();
      File local = Utils.createTempDir(Utils.getLocalDir(sparkConf), name);
      Path merged = ProviderConf.mergedRoot(id.storeCheckpointLocation().toString(), conf);
      rocksDB =
          new RocksDB(
              merged.toString(),
              RocksDBConf$.MODULE$.apply(storeConf),
              local,
              MergedFileSystem.withClasses(conf, merged.toUri().getScheme()),
              name,
              useColumnFamilies,
              storeConf.enableStateStoreCheckpointIds(),
              id.partitionId());
    }
    return rocksDB;
  }
}
