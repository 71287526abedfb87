package io.pyspark.statestore.index;

import io.pyspark.statestore.format.Entry;

/**
 * Says where the bytes of a logical file are.
 *
 * @param file the file in which it counts: the one that holds the bytes, or a reference file that says where they are
 */
public record Segment(Entry entry, MergedFile file) {
  private static final int MAX_GENERATION = 0xffff;

  public String path() {
    return entry.path();
  }

  /** The file that holds the bytes, which may be one of another checkpoint. */
  public MergedFile holder() {
    return file.isReference() ? file.foreign(entry.fileRef()) : file;
  }

  public long length() {
    return entry.length();
  }

  /** How many of its bytes are in this checkpoint. */
  long ownLength() {
    return file.isReference() ? 0 : length();
  }

  /** The bytes, and its two index entries: in its group's block and in the sealed file's. */
  public long lengthWithEntries() {
    return ownLength() + 2L * (Entry.SIZE + 4 + entry.path().length());
  }

  /** When it was written, in Unix milliseconds by the clock that stamped it. */
  public long writtenAtMs() {
    return HybridClock.millisOf(entry.stamp());
  }

  public int compareKeyTo(long stamp, long writer) {
    return Entry.compareKeys(entry.stamp(), entry.writer(), stamp, writer);
  }

  /**
   * Rules 3 and 5: the newest key wins, of equal keys the highest generation. The name and the place in the file only
   * make the order total: one file may hold a segment twice, where its writer wrote a group again.
   */
  public boolean beats(Segment other) {
    int byKey = compareKeyTo(other.entry.stamp(), other.entry.writer());
    if (byKey != 0) {
      return byKey > 0;
    }
    int byGeneration = Integer.compare(entry.generation(), other.entry.generation());
    if (byGeneration != 0) {
      return byGeneration > 0;
    }
    int byName = file.name().compareTo(other.file.name());
    return byName != 0 ? byName > 0 : entry.offset() > other.entry.offset();
  }

  boolean isSamePlace(Segment other) {
    return file == other.file
        && entry.offset() == other.entry.offset()
        && compareKeyTo(other.entry.stamp(), other.entry.writer()) == 0;
  }

  /** Rule 5: whether a relocation may copy it. A generation has 16 bits, so it has to stay after so many copies. */
  public boolean mayBeCopied() {
    return entry.generation() < MAX_GENERATION;
  }

  /**
   * Rule 5: the entry of a copy, which keeps its key and raises its generation.
   *
   * @param crc32c of the bytes that were copied
   * @param offset where the copy begins in its own file
   */
  public Entry copiedEntry(int crc32c, long offset) {
    return new Entry(
        Entry.PUT,
        Entry.typeOf(path()),
        entry.generation() + 1,
        crc32c,
        entry.stamp(),
        entry.writer(),
        offset,
        length(),
        0,
        path());
  }

  /** Segments are made when they are asked for, so the same one may be there twice. */
  @Override
  public boolean equals(Object other) {
    return other instanceof Segment segment && isSamePlace(segment) && path().equals(segment.path());
  }

  @Override
  public int hashCode() {
    return 31 * Long.hashCode(entry.stamp()) + Long.hashCode(entry.offset());
  }
}
