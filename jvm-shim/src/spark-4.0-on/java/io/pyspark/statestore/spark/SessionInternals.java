package io.pyspark.statestore.spark;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.collection.immutable.Seq;

/** What a session shows to Spark's own code only. */
final class SessionInternals {
  /** Those of running sessions to which that was added. */
  private static final Set<SparkSessionExtensions> WITH_LOOK_AHEAD =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  private SessionInternals() {}

  private static org.apache.spark.sql.classic.SparkSession classic(SparkSession session) {
    return (org.apache.spark.sql.classic.SparkSession) session;
  }

  static Configuration hadoopConf(SparkSession session) {
    return classic(session).sessionState().newHadoopConf();
  }

  /** Has queries that start from now on looked ahead for: Spark makes a session for each, with the same extensions. */
  static void lookAhead(SparkSession session) {
    if (WITH_LOOK_AHEAD.add(classic(session).extensions())) {
      LookAheadExtension.inject(classic(session).extensions());
    }
  }

  /** Adds {@link TransformWithStateGuard} to a session that runs already, once. */
  static void guardTransformWithState(SparkSession session) {
    ExperimentalMethods methods = classic(session).experimental();
    Seq<Rule<LogicalPlan>> rules = methods.extraOptimizations();
    if (rules.forall(r -> !(r instanceof TransformWithStateGuard.Optimization))) {
      @SuppressWarnings("unchecked")
      Seq<Rule<LogicalPlan>> more =
          (Seq<Rule<LogicalPlan>>) rules.appended(new TransformWithStateGuard.Optimization(session));
      methods.extraOptimizations_$eq(more);
    }
  }
}
