package io.pyspark.statestore.sink.join;

import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Shows whether a format gives back what it is given, for the columns, options and settings of a query: it writes a few
 * rows to a local file of the driver, reads them as files that are joined are read, and compares with what it had. Some
 * formats do not: one trims texts, another finds null where the name of a column is unusual, a third cannot read at all
 * what it writes. A copy that such a reader makes would look right to the same reader.
 *
 * <p>Values are tame: what a format rounds when it first writes a value (a time, say) is not what this is about.
 */
final class Probe {
  private static final int ROWS = 8;
  private static final int MOST_KEPT = 256;
  private static final String[] TEXTS = {"a", "", " b ", "0023", "true", "1e5", "line\nend", "ü\"'\\,;<&"};

  /** What was found, by form; null for what gives back everything. */
  private static final Map<String, String> FOUND =
      new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, String> eldest) {
          return size() > MOST_KEPT;
        }
      };

  private Probe() {}

  /**
   * Why files of a form cannot be joined row by row; null where they can.
   *
   * @param makeCopy as that of the query's files, with the settings of a job that it is given
   */
  static String whyNot(WrittenFormat written, Configuration conf, CopyOf makeCopy) {
    String form = written.form();
    synchronized (FOUND) {
      if (FOUND.containsKey(form)) {
        return FOUND.get(form);
      }
    }
    String found;
    java.nio.file.Path directory;
    try {
      directory = Files.createTempDirectory("pss-sink-probe");
    } catch (IOException e) {
      // Asked again by the next batch: a disk may be full for a while.
      return "the driver has no room to try what their format gives back: " + e;
    }
    try {
      found = tried(written, new Path(directory.toUri()), conf, makeCopy);
    } finally {
      FileUtil.fullyDelete(directory.toFile());
    }
    synchronized (FOUND) {
      FOUND.put(form, found);
    }
    return found;
  }

  /** Makes what copies files. */
  interface CopyOf {
    RowCopy of(Job job) throws IOException;
  }

  private static String tried(WrittenFormat written, Path directory, Configuration conf, CopyOf makeCopy) {
    try {
      Job job = Job.getInstance(conf);
      RowCopy copy = makeCopy.of(job);
      UnsafeProjection asUnsafe = UnsafeProjection.create(written.schema());
      List<UnsafeRow> given = new ArrayList<>();
      for (int number = 0; number < ROWS; number++) {
        given.add(asUnsafe.apply(row(written.schema(), number)).copy());
      }
      Path file = copy.write(directory, given, job.getConfiguration());
      FileStatus status = file.getFileSystem(conf).getFileStatus(file);
      List<UnsafeRow> found = copy.read(status);
      for (int number = 0; number < ROWS; number++) {
        if (number >= found.size() || !given.get(number).equals(found.get(number))) {
          return "its reader does not find all that its writer was given ("
              + difference(written, given, found, number)
              + ")";
        }
      }
      return found.size() == ROWS ? null : "its reader finds rows that its writer was not given";
    } catch (Exception e) {
      // Spark's own exceptions are none of those that Java knows to be thrown here.
      return "what it writes cannot be read again: " + Joined.reason(e);
    }
  }

  private static String difference(WrittenFormat written, List<UnsafeRow> given, List<UnsafeRow> found, int number) {
    if (number < found.size()) {
      StructType schema = written.schema();
      for (int at = 0; at < schema.length(); at++) {
        DataType type = schema.fields()[at].dataType();
        Object was = given.get(number).get(at, type);
        Object is = found.get(number).get(at, type);
        if (was == null ? is != null : !was.equals(is)) {
          return "in column " + schema.fields()[at].name();
        }
      }
    }
    return "a row";
  }

  private static InternalRow row(StructType schema, int number) {
    Object[] values = new Object[schema.length()];
    for (int at = 0; at < values.length; at++) {
      StructField field = schema.fields()[at];
      boolean isNull = field.nullable() && (number + at) % ROWS == ROWS - 1;
      values[at] = isNull ? null : value(field.dataType(), number + at);
    }
    return new GenericInternalRow(values);
  }

  /** A value in Spark's own form; null of a type that is not known here. */
  private static Object value(DataType type, int number) {
    if (type instanceof StructType) {
      return row((StructType) type, number);
    }
    if (type instanceof ArrayType) {
      ArrayType array = (ArrayType) type;
      Object[] elements = new Object[number % 3];
      for (int at = 0; at < elements.length; at++) {
        elements[at] =
            array.containsNull() && at == 1 && number % 2 == 0 ? null : value(array.elementType(), number + at);
      }
      return new GenericArrayData(elements);
    }
    if (type instanceof MapType) {
      MapType map = (MapType) type;
      int size = value(map.keyType(), number) == null ? 0 : number % 2;
      Object[] keys = new Object[size];
      Object[] values = new Object[size];
      for (int at = 0; at < size; at++) {
        keys[at] = value(map.keyType(), number + at);
        values[at] = map.valueContainsNull() && number % 4 == 1 ? null : value(map.valueType(), number + at);
      }
      return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values));
    }
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return Decimal.apply(
          java.math.BigDecimal.valueOf(number % 9 - 4, decimal.scale()), decimal.precision(), decimal.scale());
    }
    return atom(type.getClass().getSimpleName().replace("$", ""), number);
  }

  private static Object atom(String type, int number) {
    return switch (type) {
      case "StringType", "CharType", "VarcharType" -> UTF8String.fromString(TEXTS[number % TEXTS.length]);
      case "BinaryType" -> new byte[] {(byte) number, 0, -1};
      case "BooleanType" -> number % 2 == 0;
      case "ByteType" -> (byte) (number - 4);
      case "ShortType" -> (short) (number * 1000);
      case "IntegerType" -> number % 5 == 4 ? Integer.MIN_VALUE : number;
      case "LongType" -> number % 5 == 4 ? Long.MAX_VALUE : number;
      case "FloatType" -> number % 5 == 4 ? Float.NEGATIVE_INFINITY : number / 4f;
      case "DoubleType" -> number % 5 == 4 ? Double.NaN : number / 4d;
      case "DateType", "YearMonthIntervalType" -> 12 * (1000 + number);
      // In whole days: a type may keep no smaller part of its unit.
      case "TimestampType", "TimestampNTZType", "DayTimeIntervalType" -> 86_400_000_000L * (10_000 + number);
      default -> null;
    };
  }
}
