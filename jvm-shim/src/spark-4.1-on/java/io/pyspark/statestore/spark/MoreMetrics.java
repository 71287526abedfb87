package io.pyspark.statestore.spark;

import java.util.Map;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;

/** Adds to the metrics of a store. */
final class MoreMetrics {
  private MoreMetrics() {}

  @SuppressWarnings("unchecked")
  static StateStoreMetrics added(StateStoreMetrics metrics, Map<StateStoreCustomMetric, Long> more) {
    scala.collection.immutable.Map<StateStoreCustomMetric, Object> all = metrics.customMetrics();
    for (Map.Entry<StateStoreCustomMetric, Long> each : more.entrySet()) {
      all = all.updated(each.getKey(), each.getValue());
    }
    return new StateStoreMetrics(metrics.numKeys(), metrics.memoryUsedBytes(), all, metrics.instanceMetrics());
  }

  /** Adds to what a store says by name; Spark takes only names that are among its supported metrics. */
  @SuppressWarnings("unchecked")
  static scala.collection.immutable.Map<String, Object> named(
      scala.collection.immutable.Map<String, Object> metrics, Map<StateStoreCustomMetric, Long> more) {
    scala.collection.immutable.Map<String, Object> all = metrics;
    for (Map.Entry<StateStoreCustomMetric, Long> each : more.entrySet()) {
      all = all.updated(each.getKey().name(), each.getValue());
    }
    return all;
  }
}
