package io.pyspark.statestore.sink.join;

import java.io.Serializable;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What stands around the lines of a text file of a sink: the header of a CSV, or the root element of an XML. Everything
 * else has nothing around its lines.
 *
 * <p>A header is known by its number of lines, never by its quotes: who writes with {@code escapeQuotes=false} leaves
 * quotes open, and the next one would be in a row.
 *
 * @param kind of text
 * @param headerLines of each CSV: more than one where names of columns have ends of lines
 * @param separator what ends a line
 * @param quote begins and ends a cell of CSV that may hold anything; 0 for none
 * @param escape stands before a quote that belongs to the cell; 0 for none
 * @param cellSeparator stands between two cells
 * @param root name of the root element
 * @param isTold whether users have said all this from memory, and not the query that writes the files
 */
record TextForm(
    Kind kind,
    int headerLines,
    byte[] separator,
    byte quote,
    byte escape,
    byte[] cellSeparator,
    String root,
    boolean isTold)
    implements Serializable {
  private static final byte[] LINE_END = {'\n'};

  enum Kind {
    PLAIN,
    JSON,
    CSV_WITH_HEADER,
    CSV_WITHOUT_HEADER,
    XML
  }

  /**
   * Reads it from a writer's options.
   *
   * @param options in a map of names in any case
   */
  static TextForm of(WrittenFormat written, Map<String, String> options, Charset charset, boolean isTold) {
    byte[] separator = options.getOrDefault("lineSep", "\n").getBytes(charset);
    if (written.kind() == WrittenFormat.Kind.XML) {
      String root = options.getOrDefault("rootTag", "ROWS").strip().split("\\s")[0];
      return new TextForm(Kind.XML, 0, LINE_END, (byte) 0, (byte) 0, LINE_END, root, isTold);
    }
    Kind kind =
        switch (written.kind()) {
          case JSON -> Kind.JSON;
          case CSV -> hasHeader(options) ? Kind.CSV_WITH_HEADER : Kind.CSV_WITHOUT_HEADER;
          default -> Kind.PLAIN;
        };
    int headerLines = 1;
    for (String name : written.schema().fieldNames()) {
      headerLines += (int) name.chars().filter(c -> c == '\n').count();
    }
    String cells = options.getOrDefault("sep", options.getOrDefault("delimiter", ","));
    return new TextForm(
        kind,
        headerLines,
        separator,
        character(options, "quote", "\""),
        character(options, "escape", "\\"),
        cells.getBytes(charset),
        "",
        isTold);
  }

  /**
   * Why the header of a CSV cannot be told from its rows, for users; null where it can. The writer changes ends of
   * lines within names to those of the file.
   */
  static String whyNoHeader(WrittenFormat written, Map<String, String> options) {
    if (written.kind() != WrittenFormat.Kind.CSV || !hasHeader(options)) {
      return null;
    }
    String separator = options.getOrDefault("lineSep", "\n");
    for (String name : written.schema().fieldNames()) {
      boolean isOdd =
          name.contains("\r") || !separator.equals("\n") && (name.contains("\n") || name.contains(separator));
      if (isOdd) {
        return "the name of a column has an end of a line, and lineSep is not its default";
      }
    }
    return null;
  }

  private static boolean hasHeader(Map<String, String> options) {
    return Boolean.parseBoolean(options.getOrDefault("header", "false"));
  }

  private static byte character(Map<String, String> options, String name, String otherwise) {
    String text = options.getOrDefault(name, otherwise);
    return text.isEmpty() || text.charAt(0) > 0x7f ? 0 : (byte) text.charAt(0);
  }

  /** Whether something may stand before or after the lines. */
  boolean hasFrame() {
    return kind == Kind.CSV_WITH_HEADER || kind == Kind.XML;
  }

  /**
   * Where what stands before the lines ends.
   *
   * @param begin the beginning of a file
   * @param length how many of its bytes are known
   * @return how many bytes that are; -1 where more of the file is needed to tell
   */
  int opening(byte[] begin, int length) {
    return switch (kind) {
      case CSV_WITH_HEADER -> headerEnd(begin, length);
      case XML -> rootEnd(begin, length);
      default -> 0;
    };
  }

  private int headerEnd(byte[] begin, int length) {
    int left = headerLines;
    for (int at = 0; at < length; at++) {
      if (startsWith(begin, length, at, separator)) {
        at += separator.length - 1;
        left--;
        if (left == 0) {
          return at + 1;
        }
      }
    }
    return -1;
  }

  private int rootEnd(byte[] begin, int length) {
    String text = new String(begin, 0, length, StandardCharsets.ISO_8859_1);
    int root = text.indexOf("<" + bytewise(root()));
    int end = root < 0 ? -1 : text.indexOf('>', root);
    int line = end < 0 ? -1 : text.indexOf('\n', end);
    return line < 0 || !text.substring(end + 1, line).isBlank() ? -1 : line + 1;
  }

  /**
   * How many of the last bytes of a file stand behind its lines.
   *
   * @param tail the end of the file, of {@link #most} bytes or the whole
   * @return -1 where the file does not end as it should
   */
  int closing(byte[] tail, int length) {
    if (kind != Kind.XML) {
      return 0;
    }
    String text = new String(tail, 0, length, StandardCharsets.ISO_8859_1);
    int close = text.lastIndexOf("</" + bytewise(root()) + ">");
    return close < 0 || !text.substring(text.indexOf('>', close) + 1).isBlank() ? -1 : length - close;
  }

  /** So many bytes at most stand behind the lines. */
  int most() {
    return kind == Kind.XML ? root.length() * 4 + 64 : 0;
  }

  private static String bytewise(String text) {
    return new String(text.getBytes(StandardCharsets.UTF_8), StandardCharsets.ISO_8859_1);
  }

  /** Whether a line may be a whole header: its cells are named, no two alike, and none goes on in the next line. */
  boolean looksLikeHeader(byte[] line) {
    List<String> cells = new ArrayList<>();
    boolean quoted = false;
    int begin = 0;
    int length = line.length - separator.length;
    for (int at = 0; at < length; at++) {
      if (quoted && escape != 0 && escape != quote && line[at] == escape) {
        at++;
      } else if (quote != 0 && line[at] == quote && (quoted || at == begin)) {
        quoted = !quoted;
      } else if (!quoted && startsWith(line, length, at, cellSeparator)) {
        cells.add(new String(line, begin, at - begin, StandardCharsets.ISO_8859_1));
        begin = at + cellSeparator.length;
        at = begin - 1;
      }
    }
    cells.add(new String(line, begin, Math.max(0, length - begin), StandardCharsets.ISO_8859_1));
    Set<String> different = new HashSet<>(cells);
    return !quoted && different.size() == cells.size() && !different.contains("") && !different.contains("\"\"");
  }

  private static boolean startsWith(byte[] bytes, int length, int at, byte[] what) {
    if (what.length == 0 || at + what.length > length) {
      return false;
    }
    for (int each = 0; each < what.length; each++) {
      if (bytes[at + each] != what[each]) {
        return false;
      }
    }
    return true;
  }
}
