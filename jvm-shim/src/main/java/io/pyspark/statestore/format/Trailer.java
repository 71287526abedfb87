package io.pyspark.statestore.format;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The last 64 bytes of a group. A group without a valid trailer does not exist.
 *
 * @param flags {@link #SEALED}, {@link #CUMULATIVE}, {@link #INDEX_ONLY}, {@link #FOREIGN}; unknown bits are ignored
 * @param count entries in the index block
 * @param indexOffset of the index block, which ends where the trailer begins
 * @param indexLength in bytes
 * @param previous offset of the previous group's trailer, 0 where there is none
 * @param groupStamp the highest stamp of the group
 * @param nameTableOffset of an index-only or a reference file's name table, else 0
 * @param indexCrc crc32c of the index block
 */
public record Trailer(
    int flags,
    int count,
    long indexOffset,
    long indexLength,
    long previous,
    long groupStamp,
    long nameTableOffset,
    int indexCrc) {
  public static final int SIZE = 64;
  public static final int SEALED = 1;
  public static final int CUMULATIVE = 2;
  public static final int INDEX_ONLY = 4;
  /** A reference file: the entries' segments are in files of other checkpoints. */
  public static final int FOREIGN = 8;

  static final byte[] MAGIC = "PSSGROUP".getBytes(StandardCharsets.US_ASCII);

  public boolean isSealed() {
    return (flags & SEALED) != 0;
  }

  public boolean isCumulative() {
    return (flags & CUMULATIVE) != 0;
  }

  public boolean isIndexOnly() {
    return (flags & INDEX_ONLY) != 0;
  }

  public boolean isForeign() {
    return (flags & FOREIGN) != 0;
  }

  byte[] encode() {
    ByteBuffer out = ByteBuffer.allocate(SIZE).order(ByteOrder.LITTLE_ENDIAN);
    out.put(MAGIC).putInt(flags).putInt(count).putLong(indexOffset).putLong(indexLength);
    out.putLong(previous).putLong(groupStamp).putLong(nameTableOffset).putInt(indexCrc);
    out.putInt(Checksum.crc32c(out.array(), 0, out.position()));
    return out.array();
  }

  /** Whether these are the 64 bytes of a trailer, one of which may have changed. */
  static boolean wasOne(byte[] bytes) {
    if (Arrays.equals(bytes, 0, MAGIC.length, MAGIC, 0, MAGIC.length)) {
      return true;
    }
    byte[] mended = bytes.clone();
    System.arraycopy(MAGIC, 0, mended, 0, MAGIC.length);
    int crc = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getInt(SIZE - 4);
    return crc == Checksum.crc32c(mended, 0, SIZE - 4);
  }

  /**
   * Reads a trailer and refuses what cannot be one at this place.
   *
   * @param bytes that hold the trailer
   * @param at where it starts in {@code bytes}
   * @param fileOffset where it starts in its file
   * @return the trailer, or null where there is no whole and plausible one
   */
  static Trailer decode(byte[] bytes, int at, long fileOffset) {
    if (at < 0 || at + SIZE > bytes.length || !Arrays.equals(bytes, at, at + 8, MAGIC, 0, 8)) {
      return null;
    }
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    if (in.getInt(at + SIZE - 4) != Checksum.crc32c(bytes, at, SIZE - 4)) {
      return null;
    }
    in.position(at + 8);
    Trailer t = new Trailer(
        in.getInt(), in.getInt(), in.getLong(), in.getLong(), in.getLong(), in.getLong(), in.getLong(), in.getInt());
    boolean plausible = t.count >= 0
        && t.indexOffset > 0
        && t.indexLength >= 0
        && t.indexLength <= Integer.MAX_VALUE - 8
        && t.indexOffset <= fileOffset
        && t.indexLength == fileOffset - t.indexOffset
        && t.previous >= 0
        && t.previous < t.indexOffset
        && t.groupStamp >= 0
        && t.indexLength >= IndexBlock.minLength(t.count);
    return plausible ? t : null;
  }
}
