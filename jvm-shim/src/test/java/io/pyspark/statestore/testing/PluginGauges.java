package io.pyspark.statestore.testing;

import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.source.Source;

/** What the gauges of a plugin say in Spark's metrics system of this process. */
public final class PluginGauges {
  private PluginGauges() {}

  /** The value of one, by the plugin's class and the gauge's name. */
  public static Object value(String plugin, String gauge) {
    Source source = SparkEnv.get().metricsSystem().getSourcesByName("plugin." + plugin).head();
    return source.metricRegistry().getGauges().get(gauge).getValue();
  }
}
