package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The plugin for {@code spark.plugins}: shows {@link FileMergingMetrics} in the metrics system of the driver and of
 * each executor. Spark ends a process whose plugin fails, so no exception leaves this class, except in the driver of a
 * Spark that the jar is not for.
 */
public final class FileMergingPlugin implements SparkPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(FileMergingPlugin.class);
  /** Spark's id for the driver's process. */
  private static final String DRIVER = "driver";

  @Override
  public DriverPlugin driverPlugin() {
    ShimInfo.checkSpark();
    return new Driver();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new Executor();
  }

  private static FileMergingMetrics start(PluginContext context, boolean isExecutor) {
    try {
      // In local[n] both components run in one process, which needs its metrics once.
      boolean isShown = isExecutor && DRIVER.equals(context.executorID());
      return isShown ? null : FileMergingMetrics.start(context.metricRegistry());
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("There are no fileMerging metrics of this process; nothing else is affected", e);
      return null;
    }
  }

  private static void stop(FileMergingMetrics metrics) {
    if (metrics != null) {
      metrics.stop();
    }
  }

  private static final class Driver implements DriverPlugin {
    private FileMergingMetrics metrics;

    @Override
    public Map<String, String> init(SparkContext context, PluginContext pluginContext) {
      return Map.of();
    }

    @Override
    public void registerMetrics(String appId, PluginContext pluginContext) {
      metrics = start(pluginContext, false);
    }

    @Override
    public void shutdown() {
      stop(metrics);
    }
  }

  private static final class Executor implements ExecutorPlugin {
    private FileMergingMetrics metrics;

    @Override
    public void init(PluginContext pluginContext, Map<String, String> extraConf) {
      metrics = start(pluginContext, true);
    }

    @Override
    public void shutdown() {
      stop(metrics);
    }
  }
}
