package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.fs.MergedFileSystem;
import io.pyspark.statestore.sink.ListHolesRule;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;

/** Runs the part of {@code pyspark_statestore.attach} that needs the driver's JVM. */
public final class SessionAttach {
  private SessionAttach() {}

  /**
   * Finishes attaching a session to which the jar and the settings were added while it ran.
   *
   * @return the shim's version
   */
  public static String attach(SparkSession session) throws IOException {
    ShimInfo.checkSpark();
    Configuration conf = SessionInternals.hadoopConf(session);
    Options.from(conf).checkPackage();
    // Hadoop looks the class up with a class loader that does not know the jar, so an instance is put into its cache.
    MergedFileSystem.of(new Path("merged+file:///"), conf);
    SessionInternals.addOptimizations(session);
    if (MergedStateExtensions.injectPlanRules(SessionInternals.extensions(session))) {
      session.streams().addListener(new ListHolesRule.Listener(session, () -> SessionInternals.hadoopConf(session)));
    }
    EndedQueries.listen(session.sparkContext());
    return ShimInfo.version();
  }
}
