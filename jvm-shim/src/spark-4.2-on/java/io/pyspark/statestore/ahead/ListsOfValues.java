package io.pyspark.statestore.ahead;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;

/** Scans of rows that may have several values, as Spark calls them from 4.2 on. */
final class ListsOfValues {
  private ListsOfValues() {}

  /** Begins a scan of all rows whose keys begin with this one. */
  static void prefixScan(ReadStateStore store, UnsafeRow key, String family) {
    store.prefixScanWithMultiValues(key, family).hasNext();
  }
}
