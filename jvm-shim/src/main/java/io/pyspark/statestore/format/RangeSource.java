package io.pyspark.statestore.format;

import java.io.IOException;

/** A file whose ranges can be read. */
public interface RangeSource {
  /** The file's name, for messages. */
  String name();

  /** The number of bytes that can be read now. */
  long length();

  /** Reads exactly {@code length} bytes from {@code position} of the file on. */
  void readFully(long position, byte[] buffer, int offset, int length) throws IOException;
}
