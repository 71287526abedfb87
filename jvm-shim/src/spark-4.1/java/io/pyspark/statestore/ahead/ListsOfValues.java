package io.pyspark.statestore.ahead;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;

/** Spark 4.1 scans no lists of values: it has no state of joins of format 4. */
final class ListsOfValues {
  private ListsOfValues() {}

  /** Begins a scan of all rows whose keys begin with this one. */
  static void prefixScan(ReadStateStore store, UnsafeRow key, String family) {
    throw new IllegalStateException("Spark 4.1 has no joins whose state has lists of values");
  }
}
