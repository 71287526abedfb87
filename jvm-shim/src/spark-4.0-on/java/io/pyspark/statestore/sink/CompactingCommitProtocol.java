package io.pyspark.statestore.sink;

import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol.TaskCommitMessage;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The class to name in {@code spark.sql.streaming.commitProtocolClass}; see {@link StagedCommitProtocol}.
 * Spark's own class takes sequences of Scala 2.13 here.
 */
public final class CompactingCommitProtocol extends StagedCommitProtocol {
  /** Made by Spark for each batch. */
  public CompactingCommitProtocol(String batch, String sink) {
    super(batch, sink);
  }

  @Override
  public void commitJob(JobContext job, Seq<TaskCommitMessage> tasks) {
    super.commitJob(job, publish(job, tasks.iterator()));
    committed();
  }

  @Override
  @SuppressWarnings("unchecked")
  Function1<PartitionedFile, Iterator<InternalRow>> reader(
      RunningSink sink, StructType required, Configuration conf) {
    scala.collection.immutable.Map<String, String> rowWise = sink.options().updated(RETURNING_BATCH, "false");
    return sink.format().buildReaderWithPartitionValues(
        sink.session(), sink.schema(), new StructType(), required, seq(List.of()), rowWise, conf);
  }
}
