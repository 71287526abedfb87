package io.pyspark.statestore.testing;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;

/** An output stream whose calls fail as {@link Faults} says. */
final class FaultyOutputStream extends ObservedOutputStream {
  /** The file in which bytes are visible as they come; null if they become visible when the stream is closed. */
  private final File visible;

  private long flushed;
  private boolean broken;
  private boolean ended;

  FaultyOutputStream(ObservedFileSystem fs, Path path, FSDataOutputStream inner, File visible) {
    super(fs, path, inner);
    this.visible = visible;
    this.flushed = inner.getPos();
  }

  @Override
  public void write(byte[] b, int off, int len) throws IOException {
    requireSound();
    Faults.Rule rule = Faults.hit("write", path);
    if (rule == null || rule.worksFirst()) {
      super.write(b, off, len);
    } else if (rule.worksByHalf()) {
      super.write(b, off, len / 2);
      inner.flush();
      broken = rule.is("torn");
    }
    if (rule != null) {
      throw rule.failure(path);
    }
  }

  @Override
  public void hflush() throws IOException {
    flush("hflush");
  }

  @Override
  public void hsync() throws IOException {
    flush("hsync");
  }

  private void flush(String operation) throws IOException {
    requireSound();
    Faults.Rule rule = Faults.hit(operation, path);
    if (rule == null || rule.worksFirst()) {
      // Not an hsync, for speed: tests kill processes, never machines.
      fs.observedData(
          operation,
          path,
          () -> {
            inner.hflush();
            return 0L;
          });
      flushed = inner.getPos();
    } else if (rule.worksByHalf()) {
      inner.flush();
      cutTo(flushed + (inner.getPos() - flushed) / 2);
      broken = true;
    }
    if (rule != null) {
      throw rule.failure(path);
    }
  }

  @Override
  public void close() throws IOException {
    if (ended) {
      return;
    }
    ended = true;
    Faults.Rule rule = Faults.hit("close", path);
    if (rule == null || rule.worksFirst()) {
      super.close();
    } else if (visible == null) {
      inner.abort();
    } else {
      long length = inner.getPos();
      inner.close();
      cutTo(rule.worksByHalf() ? flushed + (length - flushed) / 2 : flushed);
    }
    if (rule != null) {
      throw rule.failure(path);
    }
  }

  private void requireSound() throws IOException {
    if (broken) {
      throw new IOException("the stream of " + path + " failed before");
    }
  }

  private void cutTo(long length) throws IOException {
    // Otherwise a file that was renamed or deleted meanwhile would come back.
    if (visible != null && visible.exists()) {
      try (RandomAccessFile file = new RandomAccessFile(visible, "rw")) {
        file.setLength(Math.min(length, file.length()));
      }
    }
  }
}
