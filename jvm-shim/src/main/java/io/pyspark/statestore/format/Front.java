package io.pyspark.statestore.format;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The first 32 bytes of a group, which announce where it is and how long it will be. A group that is shorter than its
 * front says is being written, or was torn by a crash. One that is as long, and has no valid trailer, is damaged.
 */
final class Front {
  static final int SIZE = 32;

  /** Bytes of a group that has a front and no entry. */
  static final long SMALLEST_GROUP = SIZE + Entry.fixedLength(0) + Trailer.SIZE;

  private static final byte[] MAGIC = "PSSFRONT".getBytes(StandardCharsets.US_ASCII);

  /** The magic and the group's offset: a reader knows these bytes before it reads them. */
  private static final int KNOWN = 16;

  private Front() {}

  static byte[] encode(long groupOffset, long groupLength) {
    ByteBuffer out = ByteBuffer.allocate(SIZE).order(ByteOrder.LITTLE_ENDIAN);
    out.put(MAGIC).putLong(groupOffset).putLong(groupLength).putInt(0);
    out.putInt(Checksum.crc32c(out.array(), 0, out.position()));
    return out.array();
  }

  /** The length of the group that begins at {@code groupOffset}; -1 if these bytes are not its front. */
  static long groupLength(byte[] bytes, long groupOffset) {
    if (bytes.length != SIZE || !canBegin(bytes, groupOffset)) {
      return -1;
    }
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    long length = in.getLong(KNOWN);
    boolean whole = in.getInt(SIZE - 4) == Checksum.crc32c(bytes, 0, SIZE - 4);
    return whole && length >= SMALLEST_GROUP && length <= Long.MAX_VALUE - groupOffset ? length : -1;
  }

  /** Whether the front of a group at this offset can begin with these bytes, of which there may be too few. */
  static boolean canBegin(byte[] bytes, long groupOffset) {
    int known = Math.min(bytes.length, KNOWN);
    return Arrays.equals(bytes, 0, known, encode(groupOffset, 0), 0, known);
  }

  static boolean isZero(byte[] bytes) {
    for (byte b : bytes) {
      if (b != 0) {
        return false;
      }
    }
    return true;
  }
}
