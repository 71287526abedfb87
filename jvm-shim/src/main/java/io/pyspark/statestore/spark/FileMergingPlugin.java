package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.tab.ProcessFigures;
import io.pyspark.statestore.tab.StateFilesTab;
import java.io.IOException;
import java.util.HashMap;
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
 * each executor, and {@link StateFilesTab} where the application has pages; and lets {@link EndedQueries} listen. Spark
 * ends a process whose plugin fails, so no exception leaves this class, except in the driver of a Spark that the jar is
 * not for.
 */
public final class FileMergingPlugin implements SparkPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(FileMergingPlugin.class);

  /** Spark's id for the driver's process. */
  private static final String DRIVER = "driver";

  /** What the driver tells executors: whether there is a tab that they have to tell what they do. */
  private static final String TAB = "tab";

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
      LOG.warn(
          "There are no fileMerging metrics of this process; nothing else is affected. What to do: report it"
              + " with this stack trace",
          e);
      return null;
    }
  }

  private static ProcessFigures startTelling(PluginContext context, Map<String, String> fromDriver) {
    try {
      boolean tells = Boolean.parseBoolean(fromDriver.get(TAB)) && !DRIVER.equals(context.executorID());
      return tells ? new ProcessFigures(news -> send(context, news)) : null;
    } catch (RuntimeException | LinkageError e) {
      LOG.warn(
          "The tab 'State files' misses figures of this process; nothing else is affected. What to do: report"
              + " it with this stack trace",
          e);
      return null;
    }
  }

  private static void send(PluginContext context, HashMap<String, long[]> news) throws IOException {
    if (!news.isEmpty()) {
      context.send(news);
    }
  }

  private static void stop(FileMergingMetrics metrics) {
    if (metrics != null) {
      metrics.stop();
    }
  }

  private static final class Driver implements DriverPlugin {
    private FileMergingMetrics metrics;
    private StateFilesTab tab;

    @Override
    public Map<String, String> init(SparkContext context, PluginContext pluginContext) {
      EndedQueries.listen(context);
      tab = StateFilesTab.attach(context);
      return Map.of(TAB, String.valueOf(tab != null));
    }

    @Override
    public Object receive(Object message) {
      if (tab != null) {
        tab.receive(message);
      }
      return null;
    }

    @Override
    public void registerMetrics(String appId, PluginContext pluginContext) {
      metrics = start(pluginContext, false);
      if (tab != null) {
        tab.register(pluginContext.metricRegistry());
      }
    }

    @Override
    public void shutdown() {
      stop(metrics);
      if (tab != null) {
        tab.close();
      }
    }
  }

  private static final class Executor implements ExecutorPlugin {
    private FileMergingMetrics metrics;
    private ProcessFigures figures;

    @Override
    public void init(PluginContext pluginContext, Map<String, String> extraConf) {
      metrics = start(pluginContext, true);
      figures = startTelling(pluginContext, extraConf);
    }

    @Override
    public void shutdown() {
      stop(metrics);
      if (figures != null) {
        figures.close();
      }
    }
  }
}
