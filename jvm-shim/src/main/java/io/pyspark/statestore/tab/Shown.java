package io.pyspark.statestore.tab;

import java.util.Locale;

/** How the tab shows things: what some figures are called, figures with their units, and any text as HTML. */
final class Shown {
  // Health names these figures, and the page has columns of these names.
  static final String AMPLIFICATION = "Amplification";
  static final String FLUSH = "Mean flush";
  static final String FAILED_GROUPS = "Failed groups";
  static final String FAILED_DELETES = "Failed deletes";
  static final String MAINTENANCE = "Last maintenance";
  static final String SPILL_READS = "Reads of moved rows";

  /** Stands where nobody has told a figure. */
  static final String UNKNOWN = "–";

  private Shown() {}

  /** How long something took or is ago, in its largest unit. */
  static String span(long millis) {
    long seconds = Math.max(0, millis / 1000);
    if (seconds < 120) {
      return seconds + " s";
    }
    return seconds < 7200 ? seconds / 60 + " min" : seconds / 3600 + " h";
  }

  /** Milliseconds with their unit; few ones with a tenth. */
  static String millis(double value) {
    return String.format(Locale.ROOT, value < 10 && value != Math.rint(value) ? "%.1f ms" : "%,.0f ms", value);
  }

  /** A ratio with two decimals, and what follows it. */
  static String number(double value, String unit) {
    return Double.isNaN(value) ? UNKNOWN : String.format(Locale.ROOT, "%.2f%s", value, unit);
  }

  /** A figure as Spark's script sorts by it. */
  static String exact(double value) {
    return value == Math.rint(value) ? String.valueOf((long) value) : String.format(Locale.ROOT, "%.6f", value);
  }

  /** A whole number. */
  static String count(long value) {
    return value == Figure.UNKNOWN ? UNKNOWN : String.format(Locale.ROOT, "%,d", value);
  }

  /** Bytes in the largest unit of which there is one. */
  static String bytes(long value) {
    if (value == Figure.UNKNOWN) {
      return UNKNOWN;
    }
    String[] units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    double shown = value;
    for (; shown >= 1024 && unit < units.length - 1; unit++) {
      shown /= 1024;
    }
    return String.format(Locale.ROOT, unit == 0 ? "%.0f %s" : "%.1f %s", shown, units[unit]);
  }

  /** Text as HTML, also in an attribute. What no page may contain is replaced. */
  static String text(String raw) {
    StringBuilder escaped = new StringBuilder();
    raw.codePoints()
        .forEach(
            c -> {
              switch (c) {
                case '&' -> escaped.append("&amp;");
                case '<' -> escaped.append("&lt;");
                case '>' -> escaped.append("&gt;");
                case '"' -> escaped.append("&quot;");
                case '\'' -> escaped.append("&#39;");
                default -> escaped.appendCodePoint(c < ' ' || c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
              }
            });
    return escaped.toString();
  }
}
