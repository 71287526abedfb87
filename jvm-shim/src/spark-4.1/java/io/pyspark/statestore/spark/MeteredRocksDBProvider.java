package io.pyspark.statestore.spark;

import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import scala.Option;
import scala.collection.immutable.Seq;

/** Spark's provider for RocksDB, with stores that say in a query's progress what was done to merged files. */
abstract class MeteredRocksDBProvider extends RocksDBStateStoreProvider {
  /** What has been done for the store, from the end of {@code init} on. */
  ProgressFigures figures;

  /** A task has opened a store, or goes on to write it. */
  abstract void opened(ReadStateStore store);

  @Override
  public StateStore getReadStore(long version, Option<String> uniqueId) {
    StateStore store = super.getReadStore(version, uniqueId);
    opened(store);
    return store;
  }

  @Override
  public StateStore getStore(long version, Option<String> uniqueId) {
    StateStore store = super.getStore(version, uniqueId);
    opened(store);
    return figures.metered(store);
  }

  @Override
  public StateStore upgradeReadStoreToWriteStore(ReadStateStore read, long version, Option<String> uniqueId) {
    StateStore store = super.upgradeReadStoreToWriteStore(read, version, uniqueId);
    opened(store);
    return figures.metered(store);
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return ProgressFigures.addedTo(super.supportedCustomMetrics().toList());
  }
}
