package io.pyspark.statestore.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.collection.immutable.Seq;

/** What a session shows to Spark's own code only. */
final class SessionInternals {
  private SessionInternals() {}

  private static org.apache.spark.sql.classic.SparkSession classic(SparkSession session) {
    return (org.apache.spark.sql.classic.SparkSession) session;
  }

  static Configuration hadoopConf(SparkSession session) {
    return classic(session).sessionState().newHadoopConf();
  }

  static SparkSessionExtensions extensions(SparkSession session) {
    return classic(session).extensions();
  }

  /** Adds {@link PlanChecks} to a session that runs already, once. */
  static void addOptimizations(SparkSession session) {
    ExperimentalMethods methods = classic(session).experimental();
    Seq<Rule<LogicalPlan>> rules = methods.extraOptimizations();
    if (rules.forall(r -> !(r instanceof PlanChecks.Optimization))) {
      @SuppressWarnings("unchecked")
      Seq<Rule<LogicalPlan>> more = (Seq<Rule<LogicalPlan>>) rules.appended(new PlanChecks.Optimization(session));
      methods.extraOptimizations_$eq(more);
    }
  }
}
