package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.StructType;
import scala.collection.Seq;
import scala.collection.immutable.Map;

/**
 * The provider door for the heap store: stock Spark with the merged file manager. This Spark makes its maps where they
 * cannot be replaced, so a new version copies the whole state as in stock Spark. The store keeps its plain location, by
 * which Spark's coordinator knows it.
 */
public class MergedHDFSBackedStateStoreProvider extends HDFSBackedStateStoreProvider {
  private ProgressFigures figures;

  /** Spark calls this by reflection. */
  public MergedHDFSBackedStateStoreProvider() {
    ShimInfo.checkSpark();
  }

  @Override
  public void init(
      StateStoreId stateStoreId,
      StructType keySchema,
      StructType valueSchema,
      int numColsPrefixKey,
      StateStoreConf storeConf,
      Configuration hadoopConf) {
    Configuration conf = ProviderConf.mergingPlainPaths(hadoopConf);
    super.init(stateStoreId, keySchema, valueSchema, numColsPrefixKey, storeConf, conf);
    figures = new ProgressFigures(stateStoreId, conf);
    MapsOfSpark.warnIfUnwanted(conf);
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return ProgressFigures.addedTo(super.supportedCustomMetrics().toList());
  }

  /** Adds what was done to merged files. */
  @Override
  @SuppressWarnings("unchecked")
  public synchronized Map<String, Object> getMetricsForProvider() {
    return figures.addedTo(super.getMetricsForProvider());
  }
}
