package io.pyspark.statestore.sink.join;

/**
 * Counts the lines of a text that comes in pieces, and sums up a checksum of each. So the lines of a file can be
 * compared with those of the files that it was made of, in any order and without keeping them.
 */
final class Lines {
  private static final long FACTOR = 0x9E3779B97F4A7C15L;

  private final byte[] separator;
  private final int[] fallback;
  private int matched;
  private long line = 1;
  private boolean isAtEnd = true;
  private long count;
  private long sum;
  private long first;
  private long watched;
  private boolean watches;
  private boolean seen;
  private boolean isAtBegin = true;

  /** How the lines begin; -1 before the first, and -2 where they begin in several ways. */
  private int beginning = -1;

  /**
   * @param separator what ends a line
   */
  Lines(byte[] separator) {
    this.separator = separator;
    this.fallback = new int[separator.length];
    for (int at = 1, length = 0; at < separator.length; at++) {
      while (length > 0 && separator[at] != separator[length]) {
        length = fallback[length - 1];
      }
      length += separator[at] == separator[length] ? 1 : 0;
      fallback[at] = length;
    }
  }

  /** Notes whether a line comes that has this checksum; of the lines after the first one, where that is its own. */
  void watch(long checksum) {
    watched = checksum;
    watches = true;
  }

  void add(byte[] bytes, int from, int length) {
    for (int at = from; at < from + length; at++) {
      byte next = bytes[at];
      if (isAtBegin) {
        beginning = beginning == -1 || beginning == next ? next : -2;
        isAtBegin = false;
      }
      line = (line + (next & 0xff) + 1) * FACTOR;
      line ^= line >>> 29;
      while (matched > 0 && next != separator[matched]) {
        matched = fallback[matched - 1];
      }
      matched += next == separator[matched] ? 1 : 0;
      isAtEnd = matched == separator.length;
      if (isAtEnd) {
        end();
      }
    }
  }

  private void end() {
    long checksum = mixed(line);
    seen |= watches && checksum == watched;
    if (count == 0) {
      first = checksum;
      if (!watches) {
        watch(checksum);
      }
    }
    count++;
    sum += checksum;
    matched = 0;
    line = 1;
    isAtBegin = true;
  }

  private static long mixed(long hash) {
    long mixed = (hash ^ hash >>> 32) * FACTOR;
    return mixed ^ mixed >>> 29;
  }

  /** Whether nothing came after the end of the last line. */
  boolean isAtEnd() {
    return isAtEnd;
  }

  /** Whether each line begins with a character of ASCII. */
  boolean allBeginWith(char first) {
    return beginning == -1 || beginning == first;
  }

  long count() {
    return count;
  }

  long sum() {
    return sum;
  }

  /** The checksum of the first line. */
  long first() {
    return first;
  }

  /** Whether the watched line came. */
  boolean hasSeen() {
    return seen;
  }

  /** The checksum of one line with its end; of several lines, none that a line has. */
  static long checksum(byte[] line, byte[] separator) {
    Lines lines = new Lines(separator);
    lines.add(line, 0, line.length);
    return lines.count == 1 && lines.isAtEnd ? lines.sum : 0;
  }
}
