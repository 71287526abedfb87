package io.pyspark.statestore.index;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A file's name in few bytes: UTF-8, with the first UUID in it as 16 bytes behind a byte that UTF-8 never has. Spark
 * puts a UUID into the name of each SST, and of each file where checkpoint ids are on; it is most of the name. Equal
 * names have equal bytes.
 */
final class PackedName {
  private static final byte UUID_FOLLOWS = (byte) 0xff;
  private static final int UUID_CHARS = 36;
  private static final int UUID_BYTES = 16;

  private PackedName() {}

  static byte[] pack(String name) {
    byte[] utf8 = name.getBytes(StandardCharsets.UTF_8);
    for (int from = 0; from + UUID_CHARS <= utf8.length; from++) {
      if (isUuid(utf8, from)) {
        return withUuid(utf8, from);
      }
    }
    return utf8;
  }

  private static byte[] withUuid(byte[] utf8, int from) {
    byte[] packed = new byte[utf8.length - UUID_CHARS + 1 + UUID_BYTES];
    System.arraycopy(utf8, 0, packed, 0, from);
    packed[from] = UUID_FOLLOWS;
    int to = from + 1;
    for (int i = 0; i < UUID_CHARS; i += isDash(i) ? 1 : 2) {
      if (!isDash(i)) {
        packed[to++] = (byte) (digit(utf8[from + i]) << 4 | digit(utf8[from + i + 1]));
      }
    }
    System.arraycopy(utf8, from + UUID_CHARS, packed, to, packed.length - to);
    return packed;
  }

  static String unpack(byte[] bytes, int from, int to) {
    for (int at = from; at < to; at++) {
      if (bytes[at] == UUID_FOLLOWS) {
        return text(bytes, from, at) + uuid(bytes, at + 1) + text(bytes, at + 1 + UUID_BYTES, to);
      }
    }
    return text(bytes, from, to);
  }

  /** A hash that is spread over all 32 bits. */
  static int hash(byte[] bytes, int from, int to) {
    int hash = to - from;
    for (int i = from; i < to; i++) {
      hash = 31 * hash + bytes[i];
    }
    hash = (hash ^ hash >>> 16) * 0x85ebca6b;
    hash = (hash ^ hash >>> 13) * 0xc2b2ae35;
    return hash ^ hash >>> 16;
  }

  static boolean equal(byte[] name, byte[] bytes, int from, int to) {
    return Arrays.equals(name, 0, name.length, bytes, from, to);
  }

  private static String text(byte[] bytes, int from, int to) {
    return new String(bytes, from, to - from, StandardCharsets.UTF_8);
  }

  private static String uuid(byte[] bytes, int from) {
    StringBuilder text = new StringBuilder(UUID_CHARS);
    for (int i = from; i < from + UUID_BYTES; i++) {
      if (isDash(text.length())) {
        text.append('-');
      }
      text.append(Character.forDigit(bytes[i] >> 4 & 0xf, 16)).append(Character.forDigit(bytes[i] & 0xf, 16));
    }
    return text.toString();
  }

  private static boolean isUuid(byte[] utf8, int from) {
    for (int i = 0; i < UUID_CHARS; i++) {
      if (isDash(i) ? utf8[from + i] != '-' : digit(utf8[from + i]) < 0) {
        return false;
      }
    }
    return true;
  }

  private static boolean isDash(int at) {
    return at == 8 || at == 13 || at == 18 || at == 23;
  }

  /** The value of a digit as Java's UUIDs have it, or -1: a name with capital letters stays as it is. */
  private static int digit(byte c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  }
}
