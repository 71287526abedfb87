package io.pyspark.statestore.testing;

import java.util.Map;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/** Does something in each executor when it starts, and nothing in the driver. */
abstract class InExecutors implements SparkPlugin {
  @Override
  public final DriverPlugin driverPlugin() {
    return null;
  }

  @Override
  public final ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      @Override
      public void init(PluginContext context, Map<String, String> extraConf) {
        start(context);
      }
    };
  }

  abstract void start(PluginContext context);
}
