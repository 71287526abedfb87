package io.pyspark.statestore.tables;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * How long the last SSTs of a kind have lived, which says how old the next ones have to be before they are uploaded: so
 * old that of what is uploaded little goes again before a snapshot names it.
 *
 * <p>RocksDB merges what it has flushed as soon as there are a few files of it, and most of what it has merged stays
 * for long. How soon differs by query, so it is looked at: had each of the last files been uploaded at some age, those
 * that RocksDB has deleted later would have been wasted, and those that a snapshot has named later would not.
 */
final class Lifetimes {
  /** So many files are looked at. */
  static final int FILES = 64;

  /** The part of all uploaded bytes that may be wasted. */
  static final double MOST_WASTED = 0.1;

  /** Tests allow more. */
  static volatile double mostWasted = MOST_WASTED;

  /**
   * What became of a file.
   *
   * @param ageMs how old it was when a snapshot named it, or RocksDB deleted it
   */
  private record Fate(long bytes, long ageMs, boolean isNamed) {}

  private final Deque<Fate> last = new ArrayDeque<>();
  private long dueMs;

  /** A snapshot names a file, the first one that does. */
  void named(long bytes, long ageMs) {
    add(new Fate(bytes, ageMs, true));
  }

  /** RocksDB has deleted a file that no snapshot names. */
  void deleted(long bytes, long ageMs) {
    add(new Fate(bytes, ageMs, false));
  }

  private void add(Fate fate) {
    if (last.size() == FILES) {
      last.removeFirst();
    }
    last.addLast(fate);
    dueMs = youngest();
  }

  /** The youngest age at which uploads would have wasted little: zero, or one at which a file was deleted. */
  private long youngest() {
    if (isLittle(0)) {
      return 0;
    }
    return last.stream()
        .filter(fate -> !fate.isNamed && isLittle(fate.ageMs))
        .mapToLong(Fate::ageMs)
        .min()
        .orElse(Long.MAX_VALUE);
  }

  private boolean isLittle(long dueMs) {
    double uploaded = 0;
    double wasted = 0;
    for (Fate each : last) {
      if (each.ageMs > dueMs) {
        uploaded += each.bytes;
        wasted += each.isNamed ? 0 : each.bytes;
      }
    }
    return wasted <= mostWasted * uploaded;
  }

  /** How old a file has to be; no less than so many milliseconds. */
  long dueMs(long leastMs) {
    return Math.max(leastMs, dueMs);
  }
}
