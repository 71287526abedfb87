package io.pyspark.statestore.spark;

import scala.collection.immutable.Map;

/**
 * Adds to a map of Scala's. The source is the same for all, and the compiler ties it to the Scala of the jar's Spark.
 */
final class MoreMetrics {
  private MoreMetrics() {}

  @SuppressWarnings("unchecked")
  static <K> Map<K, Object> added(Map<K, Object> metrics, java.util.Map<K, Long> more) {
    Map<K, Object> all = metrics;
    for (java.util.Map.Entry<K, Long> each : more.entrySet()) {
      all = all.updated(each.getKey(), each.getValue());
    }
    return all;
  }
}
