package io.pyspark.statestore.format;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The first 32 bytes of a group: where it is, and how long it is going to be. What is shorter than announced was torn by
 * a crash, or is being written; what is as long, and has no valid trailer, is damaged.
 */
final class Front {
  static final int SIZE = 32;
  /** Bytes of a group with a front and no entry. */
  static final long SMALLEST_GROUP = SIZE + IndexBlock.minLength(0) + Trailer.SIZE;

  private static final byte[] MAGIC = "PSSFRONT".getBytes(StandardCharsets.US_ASCII);
  /** So many of its bytes are the same in every group that begins at an offset. */
  private static final int KNOWN = 16;

  private Front() {}

  static byte[] encode(long groupOffset, long groupLength) {
    ByteBuffer out = ByteBuffer.allocate(SIZE).order(ByteOrder.LITTLE_ENDIAN);
    out.put(MAGIC).putLong(groupOffset).putLong(groupLength).putInt(0);
    out.putInt(Checksum.crc32c(out.array(), 0, out.position()));
    return out.array();
  }

  /** The length of the group that begins at {@code groupOffset}, or -1 where these bytes are not its front. */
  static long groupLength(byte[] bytes, long groupOffset) {
    if (bytes.length != SIZE || !beginsOne(bytes, groupOffset)) {
      return -1;
    }
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    long length = in.getLong(KNOWN);
    boolean whole = in.getInt(SIZE - 4) == Checksum.crc32c(bytes, 0, SIZE - 4);
    return whole && length >= SMALLEST_GROUP && length <= Long.MAX_VALUE - groupOffset ? length : -1;
  }

  /** Whether a front of this place may begin with these bytes, which may be fewer. */
  static boolean beginsOne(byte[] bytes, long groupOffset) {
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
