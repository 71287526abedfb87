package io.pyspark.statestore;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/**
 * The options of file sinks, all of them under {@link #PREFIX}. The Python package declares the same in {@code
 * pyspark_statestore.conf}; a test compares the two lists.
 *
 * @param targetFileSize bytes that a file of the sink is to have
 * @param maxDelayMs how long rows may wait for a file of that size; 0 where they do not wait
 */
public record SinkOptions(long targetFileSize, long maxDelayMs) {
  public static final String PREFIX = "spark.sql.streaming.fileSink.fileMerging.";
  private static final String TARGET_FILE_SIZE = "targetFileSize";
  private static final String MAX_DELAY = "maxDelay";

  /** Also options of one query's {@code writeStream}. */
  private static final List<String> OF_QUERIES = List.of(TARGET_FILE_SIZE, MAX_DELAY);

  private static final Map<String, String> DEFAULTS = new LinkedHashMap<>();

  static {
    DEFAULTS.put(TARGET_FILE_SIZE, "128m");
    DEFAULTS.put(MAX_DELAY, "0s");
  }

  private static final Map<String, String> REMOVED =
      Map.of("stagingRetention", "what an attempt that failed has staged stays for a day");

  /** Every option's name, without the prefix, and its default: the Python package declares the same. */
  public static Map<String, String> defaults() {
    return new LinkedHashMap<>(DEFAULTS);
  }

  /** The names of options that there are no more, and what the program does instead: Python says the same. */
  public static Map<String, String> removed() {
    return new LinkedHashMap<>(REMOVED);
  }

  /**
   * Reads and checks what is set.
   *
   * @param conf of the session
   * @param ofQuery what the query's writer was given, in a map of names in any case; counts before the session's
   */
  public static SinkOptions from(Configuration conf, Map<String, String> ofQuery) throws StateStoreFilesException {
    OptionTexts given = OptionTexts.below(PREFIX, DEFAULTS, REMOVED, conf);
    OF_QUERIES.stream().filter(ofQuery::containsKey).forEach(name -> given.given().put(name, ofQuery.get(name)));
    return new SinkOptions(
        given.bytes(TARGET_FILE_SIZE, "a size in bytes such as 128m, at least 1k", 1 << 10),
        given.millis(MAX_DELAY, "a duration such as 10m, or 0s", 0));
  }
}
