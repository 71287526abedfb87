package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;

/** An output stream that shows its calls to its file system; it has the capabilities of the stream under it. */
class ObservedOutputStream extends OutputStream implements Syncable, StreamCapabilities, Abortable {
  final ObservedFileSystem fs;
  final Path path;
  final FSDataOutputStream inner;
  private boolean closed;
  private boolean hasBlock;
  private boolean hasData;

  ObservedOutputStream(ObservedFileSystem fs, Path path, FSDataOutputStream inner) {
    this.fs = fs;
    this.path = path;
    this.inner = inner;
  }

  @Override
  public void write(int b) throws IOException {
    write(new byte[] {(byte) b}, 0, 1);
  }

  @Override
  public void write(byte[] b, int off, int len) throws IOException {
    hasData |= len > 0;
    fs.observedData(
        "write",
        path,
        () -> {
          inner.write(b, off, len);
          return (long) len;
        });
  }

  @Override
  public void flush() throws IOException {
    inner.flush();
  }

  @Override
  public void hflush() throws IOException {
    allocateBlock();
    fs.observedData(
        "hflush",
        path,
        () -> {
          inner.hflush();
          return 0L;
        });
  }

  @Override
  public void hsync() throws IOException {
    allocateBlock();
    fs.observedData(
        "hsync",
        path,
        () -> {
          inner.hsync();
          return 0L;
        });
  }

  @Override
  public void close() throws IOException {
    if (!closed) {
      closed = true;
      allocateBlock();
      fs.serverCall("complete", path);
      fs.observedData(
          "close",
          path,
          () -> {
            inner.close();
            return 0L;
          });
    }
  }

  /** Counts the request of HDFS's client to the NameNode when a file's first bytes leave it. */
  private void allocateBlock() throws IOException {
    if (hasData && !hasBlock && fs.allocatesBlocks()) {
      hasBlock = true;
      fs.serverCall("addBlock", path);
    }
  }

  @Override
  public AbortableResult abort() {
    closed = true;
    return inner.abort();
  }

  @Override
  public boolean hasCapability(String capability) {
    return inner.hasCapability(capability);
  }
}
