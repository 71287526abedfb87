package io.pyspark.statestore.testing;

import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;

/**
 * An input stream that shows its reads to its file system. To close it costs nothing anywhere, so that is not counted.
 */
final class ObservedInputStream extends FSInputStream implements StreamCapabilities {
  private final ObservedFileSystem fs;
  private final Path path;
  private final FSDataInputStream inner;

  ObservedInputStream(ObservedFileSystem fs, Path path, FSDataInputStream inner) {
    this.fs = fs;
    this.path = path;
    this.inner = inner;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  @Override
  public int read(byte[] b, int off, int len) throws IOException {
    return (int) fs.observedData("read", path, () -> (long) inner.read(b, off, len));
  }

  @Override
  public int read(long position, byte[] b, int off, int len) throws IOException {
    return (int) fs.observedData("read", path, () -> (long) inner.read(position, b, off, len));
  }

  @Override
  public void readFully(long position, byte[] b, int off, int len) throws IOException {
    // One ranged request for a remote file system, however many local reads it takes.
    fs.observedData(
        "read",
        path,
        () -> {
          int done = 0;
          while (done < len) {
            int n = inner.read(position + done, b, off + done, len - done);
            if (n < 0) {
              throw new EOFException("end of " + path + " before " + (position + len));
            }
            done += n;
          }
          return (long) done;
        });
  }

  @Override
  public void seek(long pos) throws IOException {
    inner.seek(pos);
  }

  @Override
  public long getPos() throws IOException {
    return inner.getPos();
  }

  @Override
  public boolean seekToNewSource(long targetPos) throws IOException {
    return inner.seekToNewSource(targetPos);
  }

  @Override
  public int available() throws IOException {
    return inner.available();
  }

  @Override
  public void close() throws IOException {
    inner.close();
  }

  @Override
  public boolean hasCapability(String capability) {
    return inner.hasCapability(capability);
  }
}
