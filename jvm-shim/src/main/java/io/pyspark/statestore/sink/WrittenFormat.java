package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;

/**
 * In what form the files of a sink are written.
 *
 * @param session whose settings count where options say nothing
 * @param format Spark's class for it
 * @param options of the query's writer
 * @param schema of what is in the files, so without partition columns
 */
record WrittenFormat(
    SparkSession session,
    FileFormat format,
    scala.collection.immutable.Map<String, String> options,
    StructType schema) {
  private static final Set<String> TEXTS = Set.of("TextFileFormat", "JsonFileFormat", "CSVFileFormat");

  /**
   * Finds out in what form files are.
   *
   * @param name of the format, as for {@code writeStream.format}
   * @param files whose columns are wanted; those that only some of them have, too
   * @throws StateStoreFilesException PSS_SINK_COMPACTION_FAILED where Spark does not know the format, or no schema goes
   *     with all of the files
   */
  static WrittenFormat of(
      SparkSession session,
      String name,
      scala.collection.immutable.Map<String, String> options,
      List<FileStatus> files)
      throws StateStoreFilesException {
    try {
      FileFormat format = byName(name);
      WrittenFormat unknown = new WrittenFormat(session, format, options, new StructType());
      // Text is copied as it is; of CSV the first file's header is all that is asked for.
      List<FileStatus> asked = unknown.isText() ? files.subList(0, Math.min(1, files.size())) : files;
      Option<StructType> schema = FileFormats.inferSchema(unknown, asked);
      if (schema.isEmpty()) {
        throw new IllegalArgumentException("no schema was found in the files");
      }
      return new WrittenFormat(session, format, options, schema.get());
    } catch (Exception e) {
      // Spark's own exceptions are none of those that Java knows to be thrown here.
      throw unknown(name, e);
    }
  }

  /**
   * Files whose columns are known: those that wait say them.
   *
   * @param schema as JSON
   * @throws StateStoreFilesException PSS_SINK_COMPACTION_FAILED where Spark does not know the format
   */
  static WrittenFormat of(
      SparkSession session, String name, scala.collection.immutable.Map<String, String> options, String schema)
      throws StateStoreFilesException {
    try {
      return new WrittenFormat(session, byName(name), options, (StructType) DataType.fromJson(schema));
    } catch (Exception e) {
      throw unknown(name, e);
    }
  }

  private static FileFormat byName(String name) throws ReflectiveOperationException {
    Object made = DataSource.lookupDataSource(name, SQLConf.get()).getDeclaredConstructor().newInstance();
    if (made instanceof FileDataSourceV2) {
      made = ((FileDataSourceV2) made).fallbackFileFormat().getDeclaredConstructor().newInstance();
    }
    if (!(made instanceof FileFormat)) {
      throw new IllegalArgumentException("it is no format of files");
    }
    return (FileFormat) made;
  }

  private static StateStoreFilesException unknown(String name, Exception cause) {
    return new StateStoreFilesException(
        Id.PSS_SINK_COMPACTION_FAILED, "The files could not be understood as " + name + ": " + cause.getMessage()
            + ". Nothing was changed. Give the format and the options with which the query writes.", cause);
  }

  /** Whether the files are lines of text, which can be copied byte by byte. */
  boolean isText() {
    return TEXTS.contains(format.getClass().getSimpleName());
  }

  /** Whether they are CSV, which may have a header. */
  boolean isCsv() {
    return format.getClass().getSimpleName().startsWith("CSV");
  }

  /** All that decides whether rows of two batches may go into one file: the same text means that they may. */
  String form() {
    Map<String, String> all = optionsAsMap();
    List.of("path", "checkpointLocation", "targetFileSize", "maxDelay").forEach(all::remove);
    return format.getClass().getName() + " " + schema.json() + " " + all;
  }

  /** The options of the query's writer, by names in any case. */
  Map<String, String> optionsAsMap() {
    Map<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    for (Iterator<scala.Tuple2<String, String>> i = options.iterator(); i.hasNext();) {
      scala.Tuple2<String, String> next = i.next();
      all.put(next._1(), next._2());
    }
    return all;
  }
}
