package io.pyspark.statestore.log;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.ZipEntry;
import java.util.zip.ZipException;
import java.util.zip.ZipInputStream;

/** What the zip of a RocksDB snapshot says; Spark's {@code RocksDBCheckpointMetadata} is a JSON file in it. */
final class SnapshotZip {
  private static final Pattern FILE_NAME = Pattern.compile("\"dfs(?:Sst|Log)FileName\"\\s*:\\s*\"([^\"/]+)\"");
  private static final Pattern VERSION = Pattern.compile("(\\d{1,18})(?:_[^./]*)?\\.zip");

  private SnapshotZip() {}

  /**
   * The immutable files that a snapshot needs, by their paths.
   *
   * @param path of the zip
   * @param bytes of it; what is no zip names nothing, since Spark reads it itself and says what is wrong
   */
  static List<String> filesNamed(String path, InputStream bytes) throws IOException {
    List<String> paths = new ArrayList<>();
    try (ZipInputStream in = new ZipInputStream(bytes)) {
      for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
        if (entry.getName().equals("metadata")) {
          Matcher names = FILE_NAME.matcher(new String(in.readAllBytes(), StandardCharsets.UTF_8));
          while (names.find()) {
            String folder = names.group(1).endsWith(".sst") ? "/SSTs/" : "/logs/";
            paths.add(store(path) + folder + names.group(1));
          }
        }
      }
    } catch (ZipException e) {
      return paths;
    }
    return paths;
  }

  /** The directory of the store that a zip belongs to. */
  static String store(String path) {
    return path.substring(0, Math.max(0, path.lastIndexOf('/')));
  }

  /** The version that a zip is the snapshot of, or -1 where its name is another one. */
  static long version(String path) {
    Matcher name = VERSION.matcher(path.substring(path.lastIndexOf('/') + 1));
    return name.matches() ? Long.parseLong(name.group(1)) : -1;
  }
}
