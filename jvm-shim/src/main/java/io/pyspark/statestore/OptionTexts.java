package io.pyspark.statestore;

import io.pyspark.statestore.StateStoreFilesException.Id;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The texts of options, as they are in a configuration, and what they mean.
 *
 * @param prefix of all their keys
 * @param defaults by name, without the prefix
 * @param given by name; every name has a default
 */
record OptionTexts(String prefix, Map<String, String> defaults, Map<String, String> given) {
  private static final Logger LOG = LoggerFactory.getLogger(OptionTexts.class);
  private static final Pattern WHOLE = Pattern.compile("\\d{1,9}");
  private static final Pattern DECIMAL = Pattern.compile("\\d{1,9}(?:\\.\\d{1,9})?");
  private static final Pattern QUANTITY = Pattern.compile("(\\d{1,15})\\s*([a-z]*)");
  private static final Map<String, Long> BYTES =
      Map.of(
          "", 1L, "b", 1L, "k", 1L << 10, "kb", 1L << 10, "m", 1L << 20, "mb", 1L << 20, "g", 1L << 30, "gb", 1L << 30);
  private static final Map<String, Long> MILLIS =
      Map.of("ms", 1L, "s", 1000L, "min", 60_000L, "m", 60_000L, "h", 3_600_000L, "d", 86_400_000L);

  /** A hundred years: twice as much still has room in a number. The same as Python's {@code conf.py}. */
  private static final long LONGEST_MS = 36_500 * 86_400_000L;

  /** The keys of removed options of which this process has warned. */
  private static final Set<String> SAID = ConcurrentHashMap.newKeySet();

  /**
   * Takes what a configuration says below the prefix, and refuses what is no option. Of what was one, it warns once a
   * process: what has worked goes on.
   *
   * @param removed the names of options that there are no more, and what the program does by itself instead
   */
  static OptionTexts below(String prefix, Map<String, String> defaults, Map<String, String> removed, Configuration conf)
      throws StateStoreFilesException {
    Map<String, String> given = new TreeMap<>(conf.getPropsWithPrefix(prefix));
    for (String name : List.copyOf(given.keySet())) {
      if (removed.containsKey(name)) {
        given.remove(name);
        if (SAID.add(prefix + name)) {
          LOG.warn(
              "{}{} is not an option any more and has no effect: {}. What to do: remove it",
              prefix,
              name,
              removed.get(name));
        }
      } else if (!defaults.containsKey(name)) {
        throw new StateStoreFilesException(
            Id.PSS_UNKNOWN_OPTION, prefix + name + " is not an option. Known are: " + defaults.keySet() + ".");
      }
    }
    return new OptionTexts(prefix, defaults, given);
  }

  /** The text itself, or its default. */
  String text(String name) {
    return given.getOrDefault(name, defaults.get(name)).trim();
  }

  /** true or false. */
  boolean bool(String name) throws StateStoreFilesException {
    String value = text(name).toLowerCase(Locale.ROOT);
    if (!value.equals("true") && !value.equals("false")) {
      throw invalid(name, "true or false");
    }
    return value.equals("true");
  }

  /** A number between bounds; a whole one where {@code allowed} says so. */
  double number(String name, double min, double max, String allowed) throws StateStoreFilesException {
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

  /** A size in bytes. */
  long bytes(String name, String allowed, long min) throws StateStoreFilesException {
    return quantity(name, BYTES, allowed, min, Long.MAX_VALUE);
  }

  /** A duration in milliseconds. */
  long millis(String name, String allowed, long min) throws StateStoreFilesException {
    return quantity(name, MILLIS, allowed, min, LONGEST_MS);
  }

  private long quantity(String name, Map<String, Long> units, String allowed, long min, long max)
      throws StateStoreFilesException {
    Matcher m = QUANTITY.matcher(text(name).toLowerCase(Locale.ROOT));
    if (m.matches() && units.containsKey(m.group(2))) {
      try {
        long value = Math.multiplyExact(Long.parseLong(m.group(1)), units.get(m.group(2)));
        if (value >= min && value <= max) {
          return value;
        }
      } catch (ArithmeticException e) {
        // The message below says what is wrong.
      }
    }
    throw invalid(name, allowed);
  }

  /** What to throw where a text is none of {@code allowed}. */
  StateStoreFilesException invalid(String name, String allowed) {
    return new StateStoreFilesException(
        Id.PSS_INVALID_OPTION, prefix + name + " is '" + text(name) + "'; it takes " + allowed + ".");
  }
}
