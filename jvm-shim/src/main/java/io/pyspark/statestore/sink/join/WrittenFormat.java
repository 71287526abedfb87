package io.pyspark.statestore.sink.join;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/**
 * In what form the files of a sink are written.
 *
 * @param session whose settings count where options say nothing
 * @param format Spark's class for it
 * @param options of the query's writer
 * @param schema of what is in the files, so without partition columns; empty where only the query would know
 * @param isTold whether users have said the options from memory, and not the query that writes the files
 */
public record WrittenFormat(
    SparkSession session,
    FileFormat format,
    scala.collection.immutable.Map<String, String> options,
    StructType schema,
    boolean isTold) {

  /** Formats that are known here, by their classes: Avro's is in no jar of Spark's own. */
  enum Kind {
    PARQUET("ParquetFileFormat"),
    ORC("OrcFileFormat"),
    AVRO("AvroFileFormat"),
    TEXT("TextFileFormat"),
    JSON("JsonFileFormat"),
    CSV("CSVFileFormat"),
    XML("XmlFileFormat"),
    OTHER("");

    private final String name;

    Kind(String name) {
      this.name = name;
    }

    private static Kind of(FileFormat format) {
      for (Kind kind : values()) {
        if (format.getClass().getSimpleName().equals(kind.name)) {
          return kind;
        }
      }
      return OTHER;
    }
  }

  /**
   * Why files with such columns cannot be joined, for users; null where they can. Names that differ in their case alone
   * are two columns for some readers, and one or none for others.
   */
  public String namesAlike() {
    return isTold ? namesAlike(schema) : null;
  }

  private static String namesAlike(DataType type) {
    if (type instanceof ArrayType) {
      return namesAlike(((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      String ofKeys = namesAlike(((MapType) type).keyType());
      return ofKeys == null ? namesAlike(((MapType) type).valueType()) : ofKeys;
    }
    Map<String, String> names = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    StructField[] fields = type instanceof StructType ? ((StructType) type).fields() : new StructField[0];
    for (StructField field : fields) {
      String other = names.put(field.name(), field.name());
      String inside = namesAlike(field.dataType());
      if (other != null || inside != null) {
        return other == null ? inside : "columns " + other + " and " + field.name() + " differ in their case alone";
      }
    }
    return null;
  }

  /** Which format it is, of those that are known here. */
  Kind kind() {
    return Kind.of(format);
  }

  /** Whether the files are lines of text, which can be copied byte by byte. */
  boolean isText() {
    return switch (kind()) {
      case TEXT, JSON, CSV, XML -> true;
      default -> false;
    };
  }

  /** All that decides whether rows of two batches may go into one file: the same text means that they may. */
  public String form() {
    Map<String, String> all = optionsAsMap();
    List.of("path", "checkpointLocation", "targetFileSize", "maxDelay").forEach(all::remove);
    return format.getClass().getName() + " " + schema.json() + " " + all;
  }

  /** The options of the query's writer, by names in any case. */
  public Map<String, String> optionsAsMap() {
    Map<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    for (Iterator<scala.Tuple2<String, String>> i = options.iterator(); i.hasNext(); ) {
      scala.Tuple2<String, String> next = i.next();
      all.put(next._1(), next._2());
    }
    return all;
  }
}
