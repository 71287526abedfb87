package io.pyspark.statestore.sink;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.mapred.FsInput;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.orc.ColumnStatistics;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.TypeDescription;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.Type;

/**
 * What a file says of its own columns. Who wrote the file has entered it, so it tells what was in there, whatever a reader
 * finds: one that does not know a name, say, finds null in each row.
 */
final class Footer {
  /** Where a format does not count values. */
  static final long UNKNOWN = -1;

  private Footer() {}

  /**
   * Reads it.
   *
   * @param format as {@link WrittenFormat#kind}
   * @return how many values that are not null are in each column, with all that is inside of it; null where files of the
   *     format say nothing
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
    try (ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(file, conf))) {
      for (Type column : reader.getFooter().getFileMetaData().getSchema().getFields()) {
        values.put(column.getName(), 0L);
      }
      for (BlockMetaData block : reader.getFooter().getBlocks()) {
        for (ColumnChunkMetaData chunk : block.getColumns()) {
          boolean counted = chunk.getStatistics() != null && chunk.getStatistics().isNumNullsSet();
          long found = counted ? chunk.getValueCount() - chunk.getStatistics().getNumNulls() : UNKNOWN;
          values.merge(chunk.getPath().toArray()[0], found, (a, b) -> a < 0 || b < 0 ? UNKNOWN : a + b);
        }
      }
    }
    return values;
  }

  private static Map<String, Long> ofOrc(Path file, Configuration conf) throws IOException {
    Map<String, Long> values = new LinkedHashMap<>();
    try (Reader reader = OrcFile.createReader(file, OrcFile.readerOptions(conf))) {
      ColumnStatistics[] statistics = reader.getStatistics();
      TypeDescription schema = reader.getSchema();
      List<String> names = schema.getFieldNames();
      for (int at = 0; at < names.size(); at++) {
        TypeDescription column = schema.getChildren().get(at);
        long found = 0;
        for (int id = column.getId(); id <= column.getMaximumId() && found >= 0; id++) {
          found = id < statistics.length ? found + statistics[id].getNumberOfValues() : UNKNOWN;
        }
        values.put(names.get(at), reader.getNumberOfRows() == 0 ? 0 : found);
      }
    }
    return values;
  }

  private static Map<String, Long> ofAvro(Path file, Configuration conf) throws IOException {
    Map<String, Long> values = new LinkedHashMap<>();
    try (DataFileReader<GenericRecord> reader =
        new DataFileReader<>(new FsInput(file, conf), new GenericDatumReader<>())) {
      reader.getSchema().getFields().forEach(field -> values.put(field.name(), UNKNOWN));
    }
    return values;
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
    Map<String, Long> left = new LinkedHashMap<>();
    Map<String, String> names = new LinkedHashMap<>();
    for (Map.Entry<String, Long> column : held.entrySet()) {
      String name = nameIn(has, column.getKey());
      if (name == null) {
        return "its column " + column.getKey() + " would be lost";
      }
      names.put(name, column.getKey());
      left.merge(name, column.getValue(), (a, b) -> a < 0 || b < 0 ? UNKNOWN : a + b);
    }
    for (Map.Entry<String, Long> column : left.entrySet()) {
      long found = has.get(column.getKey());
      if (column.getValue() >= 0 && found >= 0 && column.getValue() != found) {
        return "its column " + names.get(column.getKey()) + " would have " + found + " values of " + column.getValue();
      }
    }
    return null;
  }

  private static String nameIn(Map<String, Long> columns, String name) {
    if (columns.containsKey(name)) {
      return name;
    }
    return columns.keySet().stream().filter(name::equalsIgnoreCase).findFirst().orElse(null);
  }
}
