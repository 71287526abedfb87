package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.fs.Schemes;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;

/** Runs the part of {@code pyspark_statestore.attach} that needs the driver's JVM. */
public final class SessionAttach {
  private SessionAttach() {}

  /**
   * Finishes attaching a session to which the jar and the settings were added while it ran.
   *
   * @return the shim's version
   */
  public static String attach(SparkSession session) throws IOException {
    Configuration conf = session.sessionState().newHadoopConf();
    ShimInfo.checkCompatible(Options.from(conf), session.version());
    // Hadoop looks the class up with a class loader that does not know the jar, so an instance is put into its cache.
    Schemes.mergedFileSystem(new Path("merged+file:///"), conf);
    Seq<Rule<LogicalPlan>> rules = session.experimental().extraOptimizations();
    if (rules.forall(r -> !(r instanceof TransformWithStateGuard.Optimization))) {
      @SuppressWarnings("unchecked")
      Seq<Rule<LogicalPlan>> more =
          (Seq<Rule<LogicalPlan>>) rules.appended(new TransformWithStateGuard.Optimization(session));
      session.experimental().extraOptimizations_$eq(more);
    }
    return ShimInfo.version();
  }
}
