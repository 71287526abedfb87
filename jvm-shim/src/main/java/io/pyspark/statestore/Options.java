package io.pyspark.statestore;

import io.pyspark.statestore.StateStoreFilesException.Id;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;

/**
 * The options, all of them under {@link #PREFIX}. The Python package declares the same in
 * {@code pyspark_statestore.conf}; a test compares the two lists.
 *
 * @param maxFileSize bytes after which a merged file is sealed
 * @param maxOpenFiles the most lanes of a process and checkpoint
 * @param maxSpaceAmplification the ratio of physical to live bytes that cleaning aims to stay below
 * @param compactionEnabled whether maintenance reclaims space
 * @param hsync whether a commit waits for the disk (hsync) and not only for the data nodes (hflush)
 * @param groupCommitMaxWaitMs how long a commit may wait for others to join its group; -1 is automatic
 * @param idleSealMs how long a file may go without an append; then it is sealed, or never appended to again (rule 7)
 * @param closedAfterMs how long another process's unsealed file must not change to count as closed (rule 7)
 * @param bufferMemory bytes of payload that a process holds in memory per checkpoint; more goes to the local disk
 * @param readParallelism the most ranges that are read at the same time
 * @param verifyChecksums whether segments are checked against their crc32c (rule 9)
 * @param heapCopyOnWrite whether versions of a heap store share what did not change between them
 * @param indexService whether executors learn from the driver what others have written, and not from the files
 * @param fileManagerClass the manager of files that are not state; empty for Spark's own choice
 * @param shimVersion the version that the Python package expects; empty skips the check
 */
public record Options(
    long maxFileSize,
    int maxOpenFiles,
    double maxSpaceAmplification,
    boolean compactionEnabled,
    boolean hsync,
    long groupCommitMaxWaitMs,
    long idleSealMs,
    long closedAfterMs,
    long bufferMemory,
    int readParallelism,
    boolean verifyChecksums,
    boolean heapCopyOnWrite,
    boolean indexService,
    String fileManagerClass,
    String shimVersion) {
  public static final String PREFIX = "spark.sql.streaming.stateStore.fileMerging.";

  private static final Map<String, String> DEFAULTS = new LinkedHashMap<>();

  static {
    DEFAULTS.put("maxFileSize", "128m");
    DEFAULTS.put("maxOpenFiles", "4");
    DEFAULTS.put("maxSpaceAmplification", "2.0");
    DEFAULTS.put("compaction.enabled", "true");
    DEFAULTS.put("flush", "hflush");
    DEFAULTS.put("groupCommit.maxWait", "auto");
    DEFAULTS.put("idleSeal", "60s");
    DEFAULTS.put("closedAfter", "10m");
    DEFAULTS.put("bufferMemory", "8m");
    DEFAULTS.put("readParallelism", "8");
    DEFAULTS.put("verifyChecksums", "true");
    DEFAULTS.put("heap.copyOnWrite", "true");
    DEFAULTS.put("indexService.enabled", "true");
    DEFAULTS.put("fileManagerClass", "");
    DEFAULTS.put("shimVersion", "");
  }

  private static final Pattern WHOLE = Pattern.compile("\\d{1,9}");
  private static final Pattern DECIMAL = Pattern.compile("\\d{1,9}(?:\\.\\d{1,9})?");
  private static final Pattern QUANTITY = Pattern.compile("(\\d{1,15})\\s*([a-z]*)");
  private static final Map<String, Long> BYTES = Map.of(
      "", 1L, "b", 1L, "k", 1L << 10, "kb", 1L << 10, "m", 1L << 20, "mb", 1L << 20, "g", 1L << 30, "gb", 1L << 30);
  private static final Map<String, Long> MILLIS =
      Map.of("ms", 1L, "s", 1000L, "min", 60_000L, "m", 60_000L, "h", 3_600_000L, "d", 86_400_000L);

  /** Every option's name, without the prefix, and its default: the Python package declares the same. */
  public static Map<String, String> defaults() {
    return new LinkedHashMap<>(DEFAULTS);
  }

  /** Reads and checks what is set under the prefix. */
  public static Options from(Configuration conf) throws StateStoreFilesException {
    Map<String, String> given = new TreeMap<>(conf.getPropsWithPrefix(PREFIX));
    for (String name : given.keySet()) {
      if (!DEFAULTS.containsKey(name)) {
        throw new StateStoreFilesException(
            Id.PSS_UNKNOWN_OPTION, PREFIX + name + " is not an option. Known are: " + DEFAULTS.keySet() + ".");
      }
    }
    return new Parser(given).parse();
  }

  /** Whether the shim chooses how long commits wait for others, by the file system. */
  public boolean groupCommitIsAutomatic() {
    return groupCommitMaxWaitMs < 0;
  }

  private record Parser(Map<String, String> given) {
    Options parse() throws StateStoreFilesException {
      String flush = text("flush").toLowerCase(Locale.ROOT);
      if (!flush.equals("hflush") && !flush.equals("hsync")) {
        throw invalid("flush", "hflush or hsync");
      }
      String wait = text("groupCommit.maxWait");
      Options options = new Options(
          quantity("maxFileSize", BYTES, "a size in bytes such as 128m, at least 64k", 64 << 10),
          (int) number("maxOpenFiles", 1, 64, "a whole number from 1 to 64"),
          number("maxSpaceAmplification", 1.05, 1000, "a number from 1.05 to 1000"),
          bool("compaction.enabled"),
          flush.equals("hsync"),
          wait.equals("auto") ? -1 : quantity("groupCommit.maxWait", MILLIS, "auto or a duration such as 10ms", 0),
          quantity("idleSeal", MILLIS, "a duration such as 60s, at least 1s", 1000),
          quantity("closedAfter", MILLIS, "a duration such as 10m", 1000),
          quantity("bufferMemory", BYTES, "a size in bytes such as 8m", 0),
          (int) number("readParallelism", 1, 256, "a whole number from 1 to 256"),
          bool("verifyChecksums"),
          bool("heap.copyOnWrite"),
          bool("indexService.enabled"),
          text("fileManagerClass"),
          text("shimVersion"));
      if (options.closedAfterMs < 5 * options.idleSealMs) {
        throw invalid("closedAfter", "at least five times idleSeal (" + text("idleSeal") + "), because a file that its"
            + " writer may still append to must not count as closed");
      }
      return options;
    }

    private String text(String name) {
      return given.getOrDefault(name, DEFAULTS.get(name)).trim();
    }

    private boolean bool(String name) throws StateStoreFilesException {
      String value = text(name).toLowerCase(Locale.ROOT);
      if (!value.equals("true") && !value.equals("false")) {
        throw invalid(name, "true or false");
      }
      return value.equals("true");
    }

    private double number(String name, double min, double max, String allowed) throws StateStoreFilesException {
      try {
        boolean plain = (allowed.startsWith("a whole") ? WHOLE : DECIMAL).matcher(text(name)).matches();
        double value = plain ? Double.parseDouble(text(name)) : Double.NaN;
        if (value >= min && value <= max) {
          return value;
        }
      } catch (NumberFormatException e) {
        // The message below says what is wrong.
      }
      throw invalid(name, allowed);
    }

    private long quantity(String name, Map<String, Long> units, String allowed, long min)
        throws StateStoreFilesException {
      Matcher m = QUANTITY.matcher(text(name).toLowerCase(Locale.ROOT));
      if (m.matches() && units.containsKey(m.group(2))) {
        try {
          long value = Math.multiplyExact(Long.parseLong(m.group(1)), units.get(m.group(2)));
          if (value >= min) {
            return value;
          }
        } catch (ArithmeticException e) {
          // The message below says what is wrong.
        }
      }
      throw invalid(name, allowed);
    }

    private StateStoreFilesException invalid(String name, String allowed) {
      return new StateStoreFilesException(
          Id.PSS_INVALID_OPTION, PREFIX + name + " is '" + text(name) + "'; it takes " + allowed + ".");
    }
  }
}
