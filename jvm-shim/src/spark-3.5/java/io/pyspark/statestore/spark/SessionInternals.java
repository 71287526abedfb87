package io.pyspark.statestore.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;

/** What a session shows to Spark's own code only. */
final class SessionInternals {
  private SessionInternals() {}

  static Configuration hadoopConf(SparkSession session) {
    return session.sessionState().newHadoopConf();
  }

  static SparkSessionExtensions extensions(SparkSession session) {
    return session.extensions();
  }

  /** Spark 3.5 has no transformWithState, and no reader of state. */
  static void addOptimizations(SparkSession session) {}
}
