package io.pyspark.statestore.sink;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol.TaskCommitMessage;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

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
    List<FileStatus> staged = new ArrayList<>();
    for (Iterator<TaskCommitMessage> i = tasks.iterator(); i.hasNext();) {
      for (Iterator<?> files = ((Seq<?>) i.next().obj()).iterator(); files.hasNext();) {
        staged.add(SinkFiles.status(files.next()));
      }
    }
    List<TaskCommitMessage> published;
    try {
      published = List.of(new TaskCommitMessage(seq(SinkFiles.listed(publish(job, staged)))));
    } catch (IOException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
    aboutToCommit();
    super.commitJob(job, seq(published));
    committed(job);
  }

  @Override
  @SuppressWarnings("unchecked")
  Function1<PartitionedFile, Iterator<InternalRow>> reader(
      FileFormat format,
      SparkSession session,
      StructType dataSchema,
      StructType requiredSchema,
      scala.collection.immutable.Map<String, String> options,
      Configuration conf) {
    scala.collection.immutable.Map<String, String> rowWise = options.updated(RETURNING_BATCH, "false");
    return format.buildReaderWithPartitionValues(
        session, dataSchema, new StructType(), requiredSchema, seq(List.of()), rowWise, conf);
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toList();
  }
}
