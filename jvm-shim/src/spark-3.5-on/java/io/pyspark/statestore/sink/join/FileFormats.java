package io.pyspark.statestore.sink.join;

import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/**
 * What is asked of Spark's formats. Their methods take another class of sequences in each Scala, so the same source
 * gives other bytes in the jar for 3.5.
 */
final class FileFormats {
  /** A columnar format wants to be told whether its reader gives batches of rows. */
  private static final String RETURNING_BATCH = "returning_batch";

  private FileFormats() {}

  /**
   * A reader that gives row by row.
   *
   * @param required the columns of the rows
   * @param conf in which the format enters what is to be read
   */
  @SuppressWarnings("unchecked")
  static Function1<PartitionedFile, Iterator<InternalRow>> reader(
      WrittenFormat written, StructType required, Configuration conf) {
    Map<String, String> rowWise = written.options().updated(RETURNING_BATCH, "false");
    return written
        .format()
        .buildReaderWithPartitionValues(
            written.session(), written.schema(), new StructType(), required, ScalaList.of(List.of()), rowWise, conf);
  }

  /** Options as formats take them. */
  @SuppressWarnings("unchecked")
  static Map<String, String> options(java.util.Map<String, String> options) {
    Map<String, String> all = Map$.MODULE$.empty();
    for (java.util.Map.Entry<String, String> option : options.entrySet()) {
      all = all.updated(option.getKey(), option.getValue());
    }
    return all;
  }

  /** The columns of all files together. */
  @SuppressWarnings("unchecked")
  static Option<StructType> inferSchema(WrittenFormat written, List<FileStatus> files) {
    Map<String, String> merged = written.options().updated("mergeSchema", "true");
    return written.format().inferSchema(written.session(), merged, ScalaList.of(files));
  }
}
