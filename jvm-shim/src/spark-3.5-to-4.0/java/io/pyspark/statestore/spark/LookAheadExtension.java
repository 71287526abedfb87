package io.pyspark.statestore.spark;

import org.apache.spark.sql.SparkSessionExtensions;

/** Before Spark 4.1 no store can be opened with holes, so there is nothing to look ahead for. */
final class LookAheadExtension {
  private LookAheadExtension() {}

  static void inject(SparkSessionExtensions extensions) {}
}
