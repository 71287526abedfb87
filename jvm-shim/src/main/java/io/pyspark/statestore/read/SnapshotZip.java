package io.pyspark.statestore.read;

import io.pyspark.statestore.index.LogicalPaths;
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

/** Reads the zip of a RocksDB snapshot, in which Spark's {@code RocksDBCheckpointMetadata} is a JSON file. */
public final class SnapshotZip {
  private static final Pattern FILE_NAME = Pattern.compile("\"dfs(?:Sst|Log)FileName\"\\s*:\\s*\"([^\"/]+)\"");

  /** Bytes of metadata that are unpacked at most. Each file takes about 200; a forged zip may claim any number. */
  private static final int MAX_METADATA = 16 << 20;

  /** Bytes before the metadata that are unpacked at most: RocksDB's manifest and options. */
  private static final long MAX_UNPACKED = 256L << 20;

  private static final byte[] NOTHING = {};

  private SnapshotZip() {}

  /**
   * Returns the paths of the immutable files that a snapshot needs. What is no zip, or unpacks to more than any real
   * one, names nothing: Spark reads it itself and says what is wrong.
   *
   * @param path of the zip
   */
  public static List<String> filesNamed(String path, InputStream bytes) throws IOException {
    byte[] metadata = metadata(bytes);
    List<String> paths = new ArrayList<>();
    Matcher names = FILE_NAME.matcher(new String(metadata, StandardCharsets.UTF_8));
    while (names.find()) {
      String folder = names.group(1).endsWith(".sst") ? "/SSTs/" : "/logs/";
      paths.add(LogicalPaths.directory(path) + folder + names.group(1));
    }
    return paths;
  }

  /** Returns the metadata in a zip; no bytes where there is none, or too much. */
  private static byte[] metadata(InputStream bytes) throws IOException {
    try (ZipInputStream in = new ZipInputStream(bytes)) {
      long left = MAX_UNPACKED;
      for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
        if (entry.getName().equals("metadata")) {
          byte[] found = in.readNBytes(MAX_METADATA + 1);
          return found.length > MAX_METADATA ? NOTHING : found;
        }
        // Going on to the next entry means unpacking this one.
        left -= in.skip(left + 1);
        if (left < 0) {
          return NOTHING;
        }
      }
    } catch (ZipException | EOFException | IllegalArgumentException e) {
      return NOTHING; // the last of these means that a name is not UTF-8
    }
    return NOTHING;
  }
}
