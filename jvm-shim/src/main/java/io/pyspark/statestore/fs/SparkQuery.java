package io.pyspark.statestore.fs;

import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;

/** What Spark says of the query for which a store is made or a task runs: the id of its run, and its batch. */
public final class SparkQuery {
  /** The key under which Spark sets the id of a query's run, {@code StreamExecution.RUN_ID_KEY}. */
  public static final String RUN_ID = "sql.streaming.runId";

  /** The local property that Spark sets for the jobs of a batch, {@code MicroBatchExecution.BATCH_ID_KEY}. */
  private static final String BATCH_ID = "streaming.sql.batchId";

  /** The local property that Spark sets for the jobs of a query, {@code StreamExecution.QUERY_ID_KEY}. */
  private static final String QUERY_ID = "sql.streaming.queryId";

  /** The local property of a job's group. A query's is the id of its run, by which it cancels its jobs. */
  private static final String JOB_GROUP = "spark.jobGroup.id";

  private static final Pattern UUID = Pattern.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");

  private SparkQuery() {}

  /** The id of the run that a configuration is of; empty if it is of none. */
  static String runIdIn(Configuration conf) {
    return conf.get(RUN_ID, "");
  }

  /**
   * The configuration of a store, with the id of the query's run. Spark puts it there from 4.0 on; for 3.5 the current
   * task says it, which makes the store.
   */
  static Configuration withRunId(Configuration conf) {
    TaskContext task = TaskContext.get();
    if (task == null || conf.get(RUN_ID) != null || !hasTask(task)) {
      return conf;
    }
    String group = task.getLocalProperty(JOB_GROUP);
    if (group == null || !UUID.matcher(group).matches()) {
      return conf;
    }
    Configuration copy = new Configuration(conf);
    copy.set(RUN_ID, group);
    return copy;
  }

  /** Whether a task is of a streaming query. */
  static boolean hasTask(TaskContext task) {
    return task.getLocalProperty(QUERY_ID) != null;
  }

  /** The number of the batch that the current task is of; -1 for none. */
  static long batch() {
    TaskContext task = TaskContext.get();
    return number(task == null ? null : task.getLocalProperty(BATCH_ID));
  }

  /** The number of the batch that the current thread of the driver works on; -1 for none. */
  public static long batchOf(SparkContext context) {
    return number(context.getLocalProperty(BATCH_ID));
  }

  /** The number of the batch that a job is of; -1 for none. */
  public static long batchOf(Properties job) {
    return number(job.getProperty(BATCH_ID));
  }

  /** The id of the run that the current thread of the driver works for, or another group; empty for none. */
  public static String runOf(SparkContext context) {
    String group = context.getLocalProperty(JOB_GROUP);
    return group == null ? "" : group;
  }

  /** The id of the run that a job is of, or another group that it is in; empty for none. */
  public static String runOf(Properties job) {
    return job == null ? "" : job.getProperty(JOB_GROUP, "");
  }

  private static long number(String batch) {
    return batch == null ? -1 : Long.parseLong(batch);
  }
}
