package io.pyspark.statestore.format;

import java.io.IOException;

/** A file to read ranges of. */
public interface RangeSource {
  /** The file's name, for messages. */
  String name();

  /** How many bytes can be read now. */
  long length();

  /** Reads exactly {@code length} bytes that start at {@code position} of the file. */
  void readFully(long position, byte[] buffer, int offset, int length) throws IOException;
}
