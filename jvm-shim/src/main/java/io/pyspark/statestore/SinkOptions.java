package io.pyspark.statestore;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/**
 * The options of file sinks, all of them under {@link #PREFIX}. The Python package declares the same in
 * {@code pyspark_statestore.conf}; a test compares the two lists.
 *
 * @param targetFileSize bytes that a file of the sink is to have
 * @param stagingRetentionMs how long staged files that no batch has published stay
 */
public record SinkOptions(long targetFileSize, long stagingRetentionMs) {
  public static final String PREFIX = "spark.sql.streaming.fileSink.fileMerging.";
  /** Also an option of one query's {@code writeStream}. */
  private static final String TARGET_FILE_SIZE = "targetFileSize";

  private static final Map<String, String> DEFAULTS = new LinkedHashMap<>();

  static {
    DEFAULTS.put(TARGET_FILE_SIZE, "128m");
    DEFAULTS.put("stagingRetention", "1d");
  }

  /** Every option's name, without the prefix, and its default: the Python package declares the same. */
  public static Map<String, String> defaults() {
    return new LinkedHashMap<>(DEFAULTS);
  }

  /**
   * Reads and checks what is set.
   *
   * @param conf of the session
   * @param ofQuery what the query's writer was given, in a map of names in any case; counts before the session's
   */
  public static SinkOptions from(Configuration conf, Map<String, String> ofQuery) throws StateStoreFilesException {
    OptionTexts given = OptionTexts.below(PREFIX, DEFAULTS, conf);
    if (ofQuery.containsKey(TARGET_FILE_SIZE)) {
      given.given().put(TARGET_FILE_SIZE, ofQuery.get(TARGET_FILE_SIZE));
    }
    return new SinkOptions(
        given.bytes(TARGET_FILE_SIZE, "a size in bytes such as 128m, at least 1k", 1 << 10),
        given.millis("stagingRetention", "a duration such as 1d, at least 1m", 60_000));
  }
}
