package io.pyspark.statestore.log;

import java.io.EOFException;
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
  /** Bytes of the metadata that are unpacked; of each file there are about 200. A zip may say that there are more. */
  private static final int MAX_METADATA = 16 << 20;

  /** Bytes before the metadata that are unpacked: RocksDB's manifest and options. */
  private static final long MAX_UNPACKED = 256L << 20;

  private static final byte[] NOTHING = {};

  private static final Pattern VERSION = Pattern.compile("(\\d{1,18})(?:_[^./]*)?\\.zip");

  private SnapshotZip() {}

  /**
   * The immutable files that a snapshot needs, by their paths.
   *
   * @param path of the zip
   * @param bytes of it; what is no zip, or unpacks to more than any, names nothing, since Spark reads it itself and says
   *     what is wrong
   */
  static List<String> filesNamed(String path, InputStream bytes) throws IOException {
    byte[] metadata = metadata(bytes);
    List<String> paths = new ArrayList<>();
    Matcher names = FILE_NAME.matcher(new String(metadata, StandardCharsets.UTF_8));
    while (names.find()) {
      String folder = names.group(1).endsWith(".sst") ? "/SSTs/" : "/logs/";
      paths.add(store(path) + folder + names.group(1));
    }
    return paths;
  }

  /** The metadata in a zip; nothing where there is none, or more than is unpacked. */
  private static byte[] metadata(InputStream bytes) throws IOException {
    try (ZipInputStream in = new ZipInputStream(bytes)) {
      long left = MAX_UNPACKED;
      for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
        if (entry.getName().equals("metadata")) {
          byte[] found = in.readNBytes(MAX_METADATA + 1);
          return found.length > MAX_METADATA ? NOTHING : found;
        }
        // To go on to the next entry is to unpack this one.
        left -= in.skip(left + 1);
        if (left < 0) {
          return NOTHING;
        }
      }
    } catch (ZipException | EOFException | IllegalArgumentException e) {
      return NOTHING; // the last one says that a name is not UTF-8
    }
    return NOTHING;
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
