package io.pyspark.statestore.sink.join;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
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

/**
 * Finds out in what form files were written where no query is asked that writes them. Users give the format and the
 * options of its writer from memory. The columns are asked of each file, never inferred from values: a text that looks
 * like a number would become one.
 */
public final class FoundFormat {
  private FoundFormat() {}

  /**
   * The form of files that a sink has listed long ago.
   *
   * @param name of the format, as for {@code writeStream.format}
   * @param options of the query's writer
   * @param files whose columns are wanted; those that only some of them have, too
   * @throws StateStoreFilesException PSS_SINK_COMPACTION_FAILED where Spark does not know the format, or no schema goes
   *     with all of the files
   */
  public static WrittenFormat of(SparkSession session, String name, Map<String, String> options, List<FileStatus> files)
      throws StateStoreFilesException {
    try {
      WrittenFormat bare =
          new WrittenFormat(session, byName(name), FileFormats.options(options), new StructType(), true);
      if (bare.isText() || bare.kind() == WrittenFormat.Kind.OTHER) {
        return bare;
      }
      return new WrittenFormat(session, bare.format(), bare.options(), columns(bare, files), true);
    } catch (Exception e) {
      // Spark's own exceptions are none of those that Java knows to be thrown here.
      throw unknown(name, e);
    }
  }

  /**
   * The form of files whose columns are known: those that wait say them.
   *
   * @param name as for the other one, and so are the options
   * @param schema as JSON
   * @throws StateStoreFilesException PSS_SINK_COMPACTION_FAILED where Spark does not know the format
   */
  public static WrittenFormat of(SparkSession session, String name, Map<String, String> options, String schema)
      throws StateStoreFilesException {
    try {
      return new WrittenFormat(
          session, byName(name), FileFormats.options(options), (StructType) DataType.fromJson(schema), true);
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
        Id.PSS_SINK_COMPACTION_FAILED,
        "The files could not be understood as "
            + name
            + ": "
            + cause.getMessage()
            + ". Nothing was changed. Give the format and the options with which the query writes.",
        cause);
  }

  private static StructType columns(WrittenFormat bare, List<FileStatus> files) {
    return switch (bare.kind()) {
      case PARQUET, ORC -> found(FileFormats.inferSchema(bare, files));
      case AVRO -> {
        // Avro looks at one file only.
        StructType all = new StructType();
        for (FileStatus file : files) {
          all = merged(all, found(FileFormats.inferSchema(bare, List.of(file))));
        }
        yield all;
      }
      default -> throw new IllegalStateException(bare.kind().toString());
    };
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
    if (one instanceof MapType
        && other instanceof MapType
        && ((MapType) one).keyType().equals(((MapType) other).keyType())) {
      DataType value = merged(name, ((MapType) one).valueType(), ((MapType) other).valueType());
      return new MapType(((MapType) one).keyType(), value, true);
    }
    if (!one.equals(other)) {
      throw new IllegalArgumentException(
          "column " + name + " is " + one.simpleString() + " in one file and " + other.simpleString() + " in another");
    }
    return one;
  }
}
