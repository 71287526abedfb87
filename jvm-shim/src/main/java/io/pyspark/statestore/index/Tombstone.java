package io.pyspark.statestore.index;

import io.pyspark.statestore.format.Entry;

/**
 * The deletion of what was seen of a path: kills the path's entries up to and including this key, nothing newer (rule
 * 4).
 *
 * @param stamp of the newest entry that it kills
 * @param writer of that entry
 * @param generation how often it was carried over (rule 6)
 */
public record Tombstone(String path, long stamp, long writer, int generation) {
  static Tombstone of(Segment seen) {
    return new Tombstone(seen.path(), seen.entry().stamp(), seen.entry().writer(), 0);
  }

  static Tombstone of(Entry entry) {
    return new Tombstone(entry.path(), entry.stamp(), entry.writer(), entry.generation());
  }

  public Entry toEntry() {
    return Entry.tombstone(path, generation, stamp, writer);
  }

  /** The copy that is written before the file that holds this one is unlinked. */
  public Tombstone carriedOver() {
    return new Tombstone(path, stamp, writer, Math.min(generation + 1, 0xffff));
  }

  /** Bytes of its two index entries: in its group's block and in the sealed file's. */
  public long bytes() {
    return 2L * (Entry.SIZE + 4 + path.length());
  }

  /** Rule 4. */
  boolean kills(Segment segment) {
    return segment.compareKeyTo(stamp, writer) <= 0;
  }

  /** Whether it kills all that another tombstone of the path kills. */
  boolean covers(Tombstone other) {
    return Entry.compareKeys(stamp, writer, other.stamp, other.writer) >= 0;
  }

  /**
   * The total order of a path's tombstones: key, generation, name of the file. A file's tombstone is left out only
   * because of a greater copy elsewhere, so two processes never each rely on the copy that the other one unlinks.
   */
  static int compareCopies(Tombstone a, MergedFile inA, Tombstone b, MergedFile inB) {
    int byKey = Entry.compareKeys(a.stamp, a.writer, b.stamp, b.writer);
    if (byKey != 0) {
      return byKey;
    }
    int byGeneration = Integer.compare(a.generation, b.generation);
    return byGeneration != 0 ? byGeneration : inA.name().compareTo(inB.name());
  }
}
