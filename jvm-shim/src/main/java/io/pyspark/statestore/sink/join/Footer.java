package io.pyspark.statestore.sink.join;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.mapred.FsInput;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.orc.ColumnStatistics;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.RecordReader;
import org.apache.orc.StripeInformation;
import org.apache.orc.TypeDescription;
import org.apache.orc.impl.RecordReaderImpl;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;

/**
 * What a file says of its own columns. Who wrote the file has entered it, so it tells what was in there, whatever a
 * reader finds: one that does not know a name, say, finds null in each row.
 */
final class Footer {
  /** Where a format does not count values. */
  static final long UNKNOWN = -1;

  /** Between the names of a column and of what is inside of it; in no name. */
  private static final String STEP = "\0";

  private Footer() {}

  /**
   * Reads it.
   *
   * @param format as {@link WrittenFormat#kind}
   * @return how many values that are not null are in each column, and in each that is inside of one, by names; null
   *     where files of the format say nothing
   */
  static Map<String, Long> values(WrittenFormat.Kind format, Path file, Configuration conf) throws IOException {
    return switch (format) {
      case PARQUET -> ofParquet(file, conf);
      case ORC -> ofOrc(file, conf);
      case AVRO -> ofAvro(file, conf);
      default -> null;
    };
  }

  private static Map<String, Long> ofParquet(Path file, Configuration conf) throws IOException {
    Map<String, Long> values = new LinkedHashMap<>();
    // A reader without options makes a configuration out of XML for each file, which took most of the time of a join.
    ParquetReadOptions options = HadoopReadOptions.builder(conf).build();
    try (ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(file, conf), options)) {
      for (String[] column : reader.getFooter().getFileMetaData().getSchema().getPaths()) {
        values.put(String.join(STEP, column), 0L);
      }
      for (BlockMetaData block : reader.getFooter().getBlocks()) {
        for (ColumnChunkMetaData chunk : block.getColumns()) {
          boolean counted = chunk.getStatistics() != null && chunk.getStatistics().isNumNullsSet();
          long found = counted ? chunk.getValueCount() - chunk.getStatistics().getNumNulls() : UNKNOWN;
          add(values, Map.of(String.join(STEP, chunk.getPath().toArray()), found));
        }
      }
    }
    return values;
  }

  private static Map<String, Long> ofOrc(Path file, Configuration conf) throws IOException {
    Map<String, Long> values = new LinkedHashMap<>();
    try (Reader reader = OrcFile.createReader(file, OrcFile.readerOptions(conf))) {
      ColumnStatistics[] statistics = reader.getNumberOfRows() == 0 ? null : reader.getStatistics();
      ofOrc(reader.getSchema(), "", statistics, values);
    }
    return values;
  }

  /**
   * Looks into a column of ORC.
   *
   * @param statistics null where there are no rows
   */
  private static void ofOrc(
      TypeDescription type, String above, ColumnStatistics[] statistics, Map<String, Long> values) {
    List<TypeDescription> inside = type.getChildren() == null ? List.of() : type.getChildren();
    for (int at = 0; at < inside.size(); at++) {
      boolean isNamed = type.getCategory() == TypeDescription.Category.STRUCT;
      String name = above + STEP + (isNamed ? type.getFieldNames().get(at) : Integer.toString(at));
      int id = inside.get(at).getId();
      boolean counted = statistics != null && id < statistics.length;
      values.put(name, statistics == null ? 0 : counted ? statistics[id].getNumberOfValues() : UNKNOWN);
      ofOrc(inside.get(at), name, statistics, values);
    }
  }

  private static Map<String, Long> ofAvro(Path file, Configuration conf) throws IOException {
    Map<String, Long> values = new LinkedHashMap<>();
    try (DataFileReader<GenericRecord> reader =
        new DataFileReader<>(new FsInput(file, conf), new GenericDatumReader<>())) {
      reader.getSchema().getFields().forEach(field -> values.put(field.name(), UNKNOWN));
    }
    return values;
  }

  /**
   * Why a file's times may change when its rows are copied, for users; null where they do not. ORC keeps times as
   * clocks showed them where they were written. Where another zone's clocks never showed one, a reader there finds
   * another time.
   */
  static String otherZone(WrittenFormat.Kind format, Path file, Configuration conf) throws IOException {
    if (format != WrittenFormat.Kind.ORC) {
      return null;
    }
    try (Reader reader = OrcFile.createReader(file, OrcFile.readerOptions(conf))) {
      if (!hasTimes(reader.getSchema())) {
        return null;
      }
      String own = TimeZone.getDefault().getID();
      try (RecordReader rows = reader.rows()) {
        for (StripeInformation stripe : reader.getStripes()) {
          String zone = ((RecordReaderImpl) rows).readStripeFooter(stripe).getWriterTimezone();
          if (!zone.isEmpty() && !TimeZone.getTimeZone(zone).hasSameRules(TimeZone.getDefault())) {
            return "its times were written in the zone " + zone + ", and this Java's is " + own;
          }
        }
      }
      return null;
    }
  }

  private static boolean hasTimes(TypeDescription type) {
    return type.getCategory() == TypeDescription.Category.TIMESTAMP
        || type.getChildren() != null && type.getChildren().stream().anyMatch(Footer::hasTimes);
  }

  /** Adds what another file says. */
  static void add(Map<String, Long> values, Map<String, Long> others) {
    others.forEach((name, found) -> values.merge(name, found, (a, b) -> a < 0 || b < 0 ? UNKNOWN : a + b));
  }

  /**
   * What is missing in a new file of what others held.
   *
   * @return for users; null where nothing is
   */
  static String missing(Map<String, Long> held, Map<String, Long> has) {
    for (Map.Entry<String, Long> column : held.entrySet()) {
      String name = column.getKey().replace(STEP, ".").replaceFirst("^\\.", "");
      Long found = has.get(column.getKey());
      if (found == null) {
        // Names that differ in their case alone are two columns for some readers, and one for others.
        return "its column " + name + " would be lost or get another name";
      }
      if (column.getValue() >= 0 && found >= 0 && !column.getValue().equals(found)) {
        return "its column " + name + " would have " + found + " values of " + column.getValue();
      }
    }
    return null;
  }
}
