package io.pyspark.statestore.sink.join;

import java.util.List;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.SerializableConfiguration;

/** Runs Spark jobs that read and write files, with a task for each piece of work. */
final class Jobs {
  /** The jobs' pool, where the session's scheduler is FAIR. */
  private static final String POOL = "fileSinkCompaction";

  private static final String POOL_PROPERTY = "spark.scheduler.pool";

  private Jobs() {}

  /**
   * Runs one, and waits for its end.
   *
   * @param works what each task is given
   * @param conf that all tasks are given, once for each executor
   * @param tasks makes what a task does, of the settings as tasks find them
   * @return what each task answers, in the order of the works
   */
  static <W, A> List<A> run(
      SparkSession session,
      List<W> works,
      Configuration conf,
      Function<Broadcast<SerializableConfiguration>, org.apache.spark.api.java.function.Function<W, A>> tasks) {
    JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
    Broadcast<SerializableConfiguration> broadcast = spark.broadcast(new SerializableConfiguration(conf));
    String pool = spark.getLocalProperty(POOL_PROPERTY);
    spark.setLocalProperty(POOL_PROPERTY, POOL);
    try {
      return spark.parallelize(works, works.size()).map(tasks.apply(broadcast)).collect();
    } finally {
      spark.setLocalProperty(POOL_PROPERTY, pool);
      broadcast.destroy();
    }
  }
}
