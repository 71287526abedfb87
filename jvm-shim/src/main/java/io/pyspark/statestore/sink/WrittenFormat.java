package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
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
record WrittenFormat(
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
   * Finds out in what form files are that a sink has listed long ago. The columns are asked of each file, never inferred
   * from values: a text that looks like a number would become one.
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
      WrittenFormat unknown = new WrittenFormat(session, byName(name), options, new StructType(), true);
      if (unknown.isText() || unknown.kind() == Kind.OTHER) {
        return unknown;
      }
      return new WrittenFormat(session, unknown.format(), options, unknown.columnsOf(files), true);
    } catch (Exception e) {
      // Spark's own exceptions are none of those that Java knows to be thrown here.
      throw unknown(name, e);
    }
  }

  private StructType columnsOf(List<FileStatus> files) {
    return switch (kind()) {
      case PARQUET, ORC -> found(FileFormats.inferSchema(this, files));
      case AVRO -> {
        // Avro looks at one file only.
        StructType all = new StructType();
        for (FileStatus file : files) {
          all = merged(all, found(FileFormats.inferSchema(this, List.of(file))));
        }
        yield all;
      }
      default -> throw new IllegalStateException(kind().toString());
    };
  }

  /**
   * Why files with such columns cannot be joined, for users; null where they can. Names that differ in their case alone
   * are two columns for some readers, and one or none for others.
   */
  String namesAlike() {
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

  private static StructType found(Option<StructType> schema) {
    if (schema.isEmpty()) {
      throw new IllegalArgumentException("no schema was found in the files");
    }
    return schema.get();
  }

  /** The columns of both, by their exact names. */
  private static StructType merged(StructType one, StructType other) {
    List<StructField> fields = new ArrayList<>();
    List<String> names = List.of(other.fieldNames());
    for (StructField field : one.fields()) {
      int at = names.indexOf(field.name());
      DataType type = at < 0 ? field.dataType() : merged(field.name(), field.dataType(), other.fields()[at].dataType());
      fields.add(new StructField(field.name(), type, true, field.metadata()));
    }
    for (StructField field : other.fields()) {
      if (!List.of(one.fieldNames()).contains(field.name())) {
        fields.add(new StructField(field.name(), field.dataType(), true, field.metadata()));
      }
    }
    return new StructType(fields.toArray(new StructField[0]));
  }

  private static DataType merged(String name, DataType one, DataType other) {
    if (one instanceof StructType && other instanceof StructType) {
      return merged((StructType) one, (StructType) other);
    }
    if (one instanceof ArrayType && other instanceof ArrayType) {
      return new ArrayType(merged(name, ((ArrayType) one).elementType(), ((ArrayType) other).elementType()), true);
    }
    if (one instanceof MapType && other instanceof MapType && ((MapType) one).keyType().equals(((MapType) other).keyType())) {
      DataType value = merged(name, ((MapType) one).valueType(), ((MapType) other).valueType());
      return new MapType(((MapType) one).keyType(), value, true);
    }
    if (!one.equals(other)) {
      throw new IllegalArgumentException(
          "column " + name + " is " + one.simpleString() + " in one file and " + other.simpleString() + " in another");
    }
    return one;
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
      return new WrittenFormat(session, byName(name), options, (StructType) DataType.fromJson(schema), true);
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
