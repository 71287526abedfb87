package io.pyspark.statestore.format;

/**
 * One fact of an index block: a segment was written (PUT), or what its writer knew of a path was deleted (DELETE).
 *
 * @param kind {@link #PUT} or {@link #DELETE}
 * @param type what the logical file is, one of the {@code TYPE_} constants
 * @param generation how often the segment has been relocated; of equal keys the highest is read (rule 5); for a DELETE,
 *     how often it was carried over (rule 6)
 * @param crc32c the checksum of the segment's bytes; 0 for a DELETE
 * @param stamp the hybrid logical clock of the write; for a DELETE, of the newest write that it kills (rule 4)
 * @param writer the id of the process that wrote it, which decides between equal stamps
 * @param offset where the segment starts in its merged file
 * @param length bytes of the segment
 * @param fileRef 0 for the file that holds this block, else 1-based into the name table of an index-only or a reference
 *     file
 * @param path the logical path, relative to {@code <checkpoint>/state/}
 */
public record Entry(
    int kind,
    int type,
    int generation,
    int crc32c,
    long stamp,
    long writer,
    long offset,
    long length,
    int fileRef,
    String path) {
  /** Bytes of an entry in an index block, without its path. */
  public static final int SIZE = 48;

  public static final int PUT = 1;
  public static final int DELETE = 2;

  public static final int TYPE_OTHER = 0;
  public static final int TYPE_SST = 1;
  public static final int TYPE_CHANGELOG = 2;
  public static final int TYPE_SNAPSHOT = 3;
  public static final int TYPE_DELTA = 4;
  public static final int TYPE_CHECKSUM = 5;
  public static final int TYPE_LOG = 6;

  /**
   * A tombstone that kills the entries of {@code path} up to and including the key (rule 4).
   *
   * @param generation how often it has been carried over (rule 6)
   */
  public static Entry tombstone(String path, int generation, long stamp, long writer) {
    return new Entry(DELETE, typeOf(path), generation, 0, stamp, writer, 0, 0, 0, path);
  }

  /** The same fact in an index-only file, whose name table says which file holds it. */
  public Entry in(int ref) {
    return new Entry(kind, type, generation, crc32c, stamp, writer, offset, length, ref, path);
  }

  public boolean isPut() {
    return kind == PUT;
  }

  /** Bytes that so many entries take in an index block, with the offsets of their paths and without the paths. */
  static long fixedLength(int count) {
    return (long) count * SIZE + 4L * (count + 1L);
  }

  /** Rule 3's order: the newest write wins, and the writer's id breaks a tie. */
  public static int compareKeys(long stampA, long writerA, long stampB, long writerB) {
    int byStamp = Long.compare(stampA, stampB);
    return byStamp != 0 ? byStamp : Long.compare(writerA, writerB);
  }

  /** The type of a logical file, which the ending of its path tells. */
  public static int typeOf(String path) {
    if (path.endsWith(".sst")) {
      return TYPE_SST;
    } else if (path.endsWith(".changelog")) {
      return TYPE_CHANGELOG;
    } else if (path.endsWith(".zip") || path.endsWith(".snapshot")) {
      return TYPE_SNAPSHOT;
    } else if (path.endsWith(".delta")) {
      return TYPE_DELTA;
    } else if (path.endsWith(".crc")) {
      return TYPE_CHECKSUM;
    } else if (path.endsWith(".log")) {
      return TYPE_LOG;
    }
    return TYPE_OTHER;
  }
}
