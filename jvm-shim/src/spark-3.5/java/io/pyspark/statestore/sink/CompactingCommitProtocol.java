package io.pyspark.statestore.sink;

import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol.TaskCommitMessage;
import scala.collection.Seq;

/**
 * The class to name in {@code spark.sql.streaming.commitProtocolClass}; see {@link StagedCommitProtocol}. Spark's own
 * class takes sequences of Scala 2.12 here.
 */
public final class CompactingCommitProtocol extends StagedCommitProtocol {
  private static final long serialVersionUID = 1L;

  /** Made by Spark for each batch. */
  public CompactingCommitProtocol(String batch, String sink) {
    super(batch, sink);
  }

  @Override
  public void commitJob(JobContext job, Seq<TaskCommitMessage> tasks) {
    super.commitJob(job, publish(job, tasks.iterator()));
    committed();
  }
}
