package io.pyspark.statestore.tables;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.function.IntPredicate;

/**
 * Which parts of a local file are there, and which are on their way. It knows no file: whoever has it moves the bytes,
 * and guards it.
 *
 * <p>A chunk is missing, under way, or here. A chunk that is here may be given back; until the disk has taken it, it is
 * under way, so that nobody writes it meanwhile.
 */
final class Chunks {
  /** Fewer chunks than this between two holes are fetched again, so that both take one request. */
  private static final int BRIDGE = 32;

  /** Some chunks in a row; {@code end} is behind the last one. */
  record Run(int first, int end) {}

  private final long length;
  private final int size;
  private final int count;
  private final BitSet here;
  private final BitSet underWay;

  /**
   * Of what is under way, that for which no read waits. Its parts are large, so reads of rows fetch their blocks beside
   * it.
   */
  private final BitSet inBackground;

  /** Of what is here, what was read since it came, and what was read once more: that stays longer. */
  private final BitSet read = new BitSet();

  private final BitSet readAgain = new BitSet();

  private long missing;

  /**
   * Of a file of which nothing is there.
   *
   * @param length of the file
   * @param size of a chunk, in bytes
   */
  Chunks(long length, int size) {
    this.length = length;
    this.size = size;
    count = Math.toIntExact((length + size - 1) / size);
    here = new BitSet(count);
    underWay = new BitSet(count);
    inBackground = new BitSet(count);
    missing = length;
  }

  int count() {
    return count;
  }

  /** The bytes of a chunk; the last one of a file may have less. */
  int size() {
    return size;
  }

  /** Bytes that are not there. */
  long missing() {
    return missing;
  }

  /** The chunk in which a byte is. */
  int at(long offset) {
    return (int) (offset / size);
  }

  /** The first chunk behind a range that ends there. */
  int after(long end) {
    return (int) Math.min(count, (Math.min(end, length) + size - 1) / size);
  }

  long offset(int chunk) {
    return Math.min((long) chunk * size, length);
  }

  /** The bytes of some chunks. */
  long bytes(Run run) {
    return offset(run.end) - offset(run.first);
  }

  boolean has(int first, int end) {
    return here.nextClearBit(first) >= end;
  }

  /** The first chunk from there on that is missing; {@link #count} where there is none. */
  int nextMissing(int from) {
    return Math.min(here.nextClearBit(from), count);
  }

  /** The first chunk from there on that is missing and that nobody fetches; {@link #count} where there is none. */
  int nextToFetch(int from) {
    int at = here.nextClearBit(from);
    while (at < count && underWay.get(at)) {
      at = here.nextClearBit(underWay.nextClearBit(at));
    }
    return Math.min(at, count);
  }

  /** Whether a chunk is being fetched, so that to wait for it is better than to fetch it. */
  boolean isTaken(int at, boolean isOfRow) {
    return underWay.get(at) && !(isOfRow && inBackground.get(at));
  }

  /**
   * Takes a run of chunks that nobody fetches, to fetch them. The first and the last of it are missing.
   *
   * @param most how many, at most
   */
  Run take(int first, int last, long most, boolean isOfRow) {
    return take(first, last, most, 0, isOfRow);
  }

  /**
   * The same.
   *
   * @param bridge so many chunks that are here may come along between two that are missing, if it is more than usual
   */
  Run take(int first, int last, long most, long bridge, boolean isOfRow) {
    long to = Math.min(last, first + Math.max(1L, most));
    long gap = Math.max(BRIDGE, bridge);
    int end = first + 1;
    for (int at = end; at < to && !isTaken(at, isOfRow) && at - end < gap; at++) {
      if (!here.get(at)) {
        end = at + 1;
      }
    }
    underWay.set(first, end);
    inBackground.clear(first, end);
    return new Run(first, end);
  }

  /** What was taken is for nobody who waits. */
  void isInBackground(Run taken) {
    inBackground.set(taken.first, taken.end);
  }

  /** What was taken has come, or has not. Returns how many bytes were missing before. */
  long arrived(Run taken, boolean done) {
    underWay.clear(taken.first, taken.end);
    inBackground.clear(taken.first, taken.end);
    long before = missing;
    if (done) {
      for (int from = here.nextClearBit(taken.first); from < taken.end; from = here.nextClearBit(from)) {
        int to = here.nextSetBit(from);
        to = to < 0 ? taken.end : Math.min(to, taken.end);
        here.set(from, to);
        missing -= bytes(new Run(from, to));
      }
    }
    return before - missing;
  }

  // ---- giving back

  /** Some chunks were read, as far as they are here. */
  void wasRead(int first, int end) {
    for (int at = here.nextSetBit(first); at >= 0 && at < end; at = here.nextSetBit(at + 1)) {
      (read.get(at) ? readAgain : read).set(at);
    }
  }

  /**
   * Takes chunks to give them back: those that were read once at most since they came, or since this came by last.
   *
   * @param isHeld chunks that stay
   * @return runs, each with its first chunk and the one behind it; there may be holes in them
   */
  List<Run> takeToGiveBack(int from, int to, IntPredicate isHeld) {
    List<Run> runs = new ArrayList<>();
    int first = -1;
    int end = -1;
    for (int at = from; at <= to; at++) {
      boolean stays = at == to || underWay.get(at) || here.get(at) && (readAgain.get(at) || isHeld.test(at));
      if (stays && first >= 0) {
        underWay.set(first, end);
        runs.add(new Run(first, end));
        first = -1;
      }
      if (stays && at < to) {
        readAgain.clear(at);
      } else if (!stays && here.get(at)) {
        here.clear(at);
        read.clear(at);
        missing += bytes(new Run(at, at + 1));
        first = first < 0 ? at : first;
        end = at + 1;
      }
    }
    return runs;
  }

  /** What was taken is given back: whoever needs it has to fetch it. */
  void gaveBack(Run taken) {
    underWay.clear(taken.first, taken.end);
  }

  /** Some chunks are to be fetched again. Returns how many bytes were there. */
  long forget(int first, int end) {
    long before = missing;
    for (int at = here.nextSetBit(first); at >= 0 && at < end; at = here.nextSetBit(at + 1)) {
      if (!underWay.get(at)) {
        here.clear(at);
        missing += bytes(new Run(at, at + 1));
      }
    }
    return missing - before;
  }
}
