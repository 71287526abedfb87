package io.pyspark.statestore.testing;

import io.pyspark.statestore.tables.Early;
import org.apache.spark.api.plugin.PluginContext;

/** Has executors upload each SST at once, however small, where they upload SSTs as they are made. */
public final class EarlyPlugin extends InExecutors {
  @Override
  void start(PluginContext context) {
    Early.from(1, 0);
  }
}
