package io.pyspark.statestore.testing;

import com.codahale.metrics.Gauge;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/** A plugin of a user: it shows one metric, {@code mine}, in each process. */
public final class UserPlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public void registerMetrics(String appId, PluginContext context) {
        show(context);
      }

      @Override
      public Map<String, String> init(SparkContext sc, PluginContext context) {
        return Map.of();
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      @Override
      public void init(PluginContext context, Map<String, String> extraConf) {
        if (!context.executorID().equals("driver")) {
          show(context);
        }
      }
    };
  }

  private static void show(PluginContext context) {
    context.metricRegistry().register("mine", (Gauge<Integer>) () -> 42);
  }
}
