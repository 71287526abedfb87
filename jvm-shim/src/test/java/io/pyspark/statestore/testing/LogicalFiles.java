package io.pyspark.statestore.testing;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** What tests in Python do with logical files again and again, each in one call instead of one for each object. */
public final class LogicalFiles {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Reading Hadoop's defaults takes longer than most of what is done with them. */
  private static final Configuration DEFAULTS = new Configuration();

  static {
    DEFAULTS.size();
  }

  private LogicalFiles() {}

  /**
   * A new file system: Hadoop's cache would hand out one with the options of an earlier test.
   *
   * @param settings JSON: Hadoop settings
   */
  public static FileSystem fileSystem(String uri, String settings) throws IOException {
    Configuration conf = new Configuration(DEFAULTS);
    for (var setting : JSON.readValue(settings, JsonNode.class).properties()) {
      conf.set(setting.getKey(), setting.getValue().asText());
    }
    return FileSystem.newInstance(URI.create(uri), conf);
  }

  /** Commits a file. A stream that fails is not closed, as in a task that dies of it. */
  public static void write(FileSystem fs, String path, byte[] data) throws IOException {
    OutputStream out = fs.create(new Path(path), true);
    out.write(data);
    out.close();
  }

  public static byte[] read(FileSystem fs, String path) throws IOException {
    try (InputStream in = fs.open(new Path(path))) {
      return in.readAllBytes();
    }
  }

  public static boolean exists(FileSystem fs, String path) throws IOException {
    return fs.exists(new Path(path));
  }

  public static boolean delete(FileSystem fs, String path) throws IOException {
    return fs.delete(new Path(path), false);
  }

  /** The names in a directory, as a JSON list. */
  public static String names(FileSystem fs, String directory) throws IOException {
    return JSON.writeValueAsString(
        Arrays.stream(fs.listStatus(new Path(directory))).map(status -> status.getPath().getName()).sorted().toList());
  }
}
