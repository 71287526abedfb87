package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol.TaskCommitMessage;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.util.Properties;

/**
 * The class to name in {@code spark.sql.streaming.commitProtocolClass}; see {@link StagedCommitProtocol}.
 * Spark's own class takes sequences of Scala 2.12 here.
 */
public final class CompactingCommitProtocol extends StagedCommitProtocol {
  /** Made by Spark for each batch. */
  public CompactingCommitProtocol(String batch, String sink) {
    super(batch, sink);
    checkScala(Properties.versionNumberString());
  }

  /**
   * Refuses to run in Scala 2.13, where Spark calls {@code commitJob} with another class of sequences: this class would
   * not hear of the commit, and Spark would list staged files.
   *
   * @param found Scala's version
   */
  public static void checkScala(String found) {
    if (!found.startsWith("2.12.")) {
      StateStoreFilesException why = new StateStoreFilesException(
          Id.PSS_SINK_COMPACTION_FAILED, "File sinks compact in Spark 3.5 with Scala 2.12, and this is Scala " + found
              + ". Nothing was written. Unset spark.sql.streaming.commitProtocolClass, or use Spark 4.0 or newer.");
      throw new UncheckedIOException(why.getMessage(), why);
    }
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
