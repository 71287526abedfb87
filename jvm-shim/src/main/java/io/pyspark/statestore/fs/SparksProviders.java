package io.pyspark.statestore.fs;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;

/**
 * The offset log as Spark's offline repartitioning can use it: Spark compares the name of the class in it with that of
 * its own for RocksDB. Given the merged path, Spark's own class finds the same state as ours.
 *
 * <p>Entries that name another class are read as if they named that one. A new entry that names it is written with the
 * other, where the newest one has the other. So no file ever says anything else than before, whoever dies when. Only a
 * session in which {@link #KEY} is set sees it so: {@code Checkpoint.repartition} makes one for itself.
 */
final class SparksProviders {
  static final String KEY = "io.pyspark.statestore.showSparksProviders";

  private static final String PACKAGE = "org.apache.spark.sql.execution.streaming.state.";
  private static final String ROCKSDB = PACKAGE + "RocksDBStateStoreProvider";

  /**
   * What Spark is shown for each. It says only of RocksDB by what it partitions, and that does not depend on the store:
   * {@code reshape} reads and writes heap stores as such.
   */
  private static final Map<String, String> SPARKS =
      Map.of(
          DoorCheck.OWN_PROVIDERS + "MergedRocksDBStateStoreProvider", ROCKSDB,
          DoorCheck.OWN_PROVIDERS + "MergedHDFSBackedStateStoreProvider", ROCKSDB,
          PACKAGE + "HDFSBackedStateStoreProvider", ROCKSDB);

  private static final Pattern NUMBER = Pattern.compile("\\d{1,18}");

  private SparksProviders() {}

  private static boolean isEntry(Path path) {
    Path log = path.getParent();
    return log != null && log.getName().equals("offsets") && NUMBER.matcher(path.getName()).matches();
  }

  /** What Spark is to read of a file. */
  static FSDataInputStream shown(Path path, FSDataInputStream file) throws IOException {
    if (!isEntry(path)) {
      return file;
    }
    try (file) {
      byte[] entry = file.readAllBytes();
      for (Map.Entry<String, String> names : SPARKS.entrySet()) {
        entry = renamed(entry, names.getKey(), names.getValue());
      }
      return BytesInput.of(entry);
    }
  }

  /**
   * Our class, which a new file has to have in it instead of Spark's; empty if the file stays as Spark writes it.
   *
   * @throws IOException if the log cannot be read, so that nobody knows
   */
  static String ownFor(Path path, Configuration conf) throws IOException {
    String provider = isEntry(path) ? DoorCheck.providerIn(path.getParent().getParent(), conf) : "";
    return SPARKS.containsKey(provider) ? provider : "";
  }

  /** Where Spark is to write a new file for which {@link #ownFor} has said the class. */
  static AtomicFile written(AtomicFile file, String own) {
    return own.isEmpty() ? file : new Entry(file, SPARKS.get(own), own);
  }

  /**
   * Changes a class in the second line, which has the settings; the first is a version, the others are the sources'.
   */
  private static byte[] renamed(byte[] entry, String before, String after) {
    String[] lines = new String(entry, StandardCharsets.UTF_8).split("\n", 3);
    if (lines.length < 2) {
      return entry;
    }
    lines[1] = lines[1].replace('"' + before + '"', '"' + after + '"');
    return String.join("\n", lines).getBytes(StandardCharsets.UTF_8);
  }

  /** An entry that is kept until it is whole. */
  private static final class Entry implements AtomicFile {
    private final AtomicFile file;
    private final String before;
    private final String after;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private boolean finished;

    Entry(AtomicFile file, String before, String after) {
      this.file = file;
      this.before = before;
      this.after = after;
    }

    @Override
    public OutputStream out() {
      return bytes;
    }

    @Override
    public void close() throws IOException {
      if (finished) {
        return;
      }
      finished = true;
      boolean isWhole = false;
      try {
        file.out().write(renamed(bytes.toByteArray(), before, after));
        isWhole = true;
      } finally {
        if (!isWhole) {
          file.cancel();
        }
      }
      file.close();
    }

    @Override
    public void cancel() {
      finished = true;
      file.cancel();
    }
  }
}
