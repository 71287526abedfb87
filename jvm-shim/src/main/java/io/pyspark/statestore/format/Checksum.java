package io.pyspark.statestore.format;

import java.util.zip.CRC32C;

/** CRC-32C, the only checksum of the format. */
public final class Checksum {
  private Checksum() {}

  public static int crc32c(byte[] bytes, int offset, int length) {
    CRC32C crc = new CRC32C();
    crc.update(bytes, offset, length);
    return (int) crc.getValue();
  }
}
