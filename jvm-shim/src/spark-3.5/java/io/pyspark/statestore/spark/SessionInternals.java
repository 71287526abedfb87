package io.pyspark.statestore.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;

/** What a session shows to Spark's own code only. */
final class SessionInternals {
  private SessionInternals() {}

  static Configuration hadoopConf(SparkSession session) {
    return session.sessionState().newHadoopConf();
  }

  /** No store of Spark 3.5 has holes. */
  static void lookAhead(SparkSession session) {}

  /** Spark 3.5 has no transformWithState. */
  static void guardTransformWithState(SparkSession session) {}
}
