package io.pyspark.statestore.format;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The last 64 bytes of a group. A group without a valid trailer does not exist.
 *
 * @param flags {@link #SEALED}, {@link #CUMULATIVE}, {@link #INDEX_ONLY}, {@link #FOREIGN}; unknown bits are ignored
 * @param count the number of entries in the index block
 * @param indexOffset where the index block starts in the file; it ends where the trailer begins
 * @param indexLength bytes of the index block
 * @param previous the offset of the previous group's trailer, 0 if there is none
 * @param groupStamp the highest stamp of the group
 * @param nameTableOffset where the name table of an index-only or a reference file starts in the file, else 0
 * @param indexCrc the crc32c of the index block
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

  /** The flag of a reference file: the segments are in files of other checkpoints. */
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

  /** Whether these 64 bytes are a trailer, or were one before one of them changed. */
  static boolean wasTrailer(byte[] bytes) {
    if (Arrays.equals(bytes, 0, MAGIC.length, MAGIC, 0, MAGIC.length)) {
      return true;
    }
    byte[] mended = bytes.clone();
    System.arraycopy(MAGIC, 0, mended, 0, MAGIC.length);
    int crc = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getInt(SIZE - 4);
    return crc == Checksum.crc32c(mended, 0, SIZE - 4);
  }

  /**
   * Reads a trailer.
   *
   * @param at where it starts in {@code bytes}
   * @param fileOffset where it starts in its file
   * @return null if there is no whole trailer, or one that cannot be at this place
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
    Trailer t =
        new Trailer(
            in.getInt(),
            in.getInt(),
            in.getLong(),
            in.getLong(),
            in.getLong(),
            in.getLong(),
            in.getLong(),
            in.getInt());
    // A hostile count is refused here, before anything is allocated for so many entries.
    boolean plausible =
        t.count >= 0
            && t.indexOffset > 0
            && t.indexLength >= 0
            && t.indexLength <= Integer.MAX_VALUE - 8
            && t.indexOffset <= fileOffset
            && t.indexLength == fileOffset - t.indexOffset
            && t.previous >= 0
            && t.previous < t.indexOffset
            && t.groupStamp >= 0
            && t.indexLength >= Entry.fixedLength(t.count);
    return plausible ? t : null;
  }
}
