package io.pyspark.statestore.spark;

import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import scala.collection.immutable.Map;

/** Copies the metrics of a store. */
final class MetricsCopy {
  private MetricsCopy() {}

  static StateStoreMetrics with(Map<StateStoreCustomMetric, Object> customMetrics, StateStoreMetrics metrics) {
    return new StateStoreMetrics(
        metrics.numKeys(), metrics.memoryUsedBytes(), customMetrics, metrics.instanceMetrics());
  }
}
