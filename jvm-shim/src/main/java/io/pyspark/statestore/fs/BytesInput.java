package io.pyspark.statestore.fs;

import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;

/** Bytes in memory as a file of Hadoop's. */
final class BytesInput extends FSInputStream {
  private final byte[] bytes;
  private int position;

  private BytesInput(byte[] bytes) {
    this.bytes = bytes;
  }

  static FSDataInputStream of(byte[] bytes) {
    return new FSDataInputStream(new BytesInput(bytes));
  }

  @Override
  public synchronized int read() {
    return position < bytes.length ? bytes[position++] & 0xff : -1;
  }

  @Override
  public synchronized void seek(long to) throws IOException {
    if (to < 0 || to > bytes.length) {
      throw new EOFException("Cannot seek to " + to + " of " + bytes.length + " bytes");
    }
    position = (int) to;
  }

  @Override
  public synchronized long getPos() {
    return position;
  }

  @Override
  public boolean seekToNewSource(long target) {
    return false;
  }

  @Override
  public synchronized int available() {
    return bytes.length - position;
  }
}
