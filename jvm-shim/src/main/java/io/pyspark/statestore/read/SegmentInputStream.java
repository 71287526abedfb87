package io.pyspark.statestore.read;

import io.pyspark.statestore.index.Segment;
import java.io.EOFException;
import java.io.IOException;
import java.util.zip.CRC32C;
import org.apache.hadoop.fs.FSInputStream;

/**
 * A segment as a seekable stream. A small segment is read and checked when it is opened. Of a large one, a sequential
 * read is checked when it reaches the end.
 */
public final class SegmentInputStream extends FSInputStream {
  /** Bytes of the first read. Each that goes on where the last one ended is twice as long, up to a chunk. */
  private static final int AHEAD = 256 * 1024;

  private final SegmentReader reader;
  private final CRC32C crc = new CRC32C();
  private Segment segment;

  /** The whole segment, or null for a large one. */
  private final byte[] whole;

  private byte[] ahead = new byte[0];
  private long aheadStart;
  private long position;

  /** How far a sequential read from the start has come; -1 after anything was skipped. */
  private long checkedTo;

  public SegmentInputStream(SegmentReader reader, Segment segment) throws IOException {
    this.reader = reader;
    this.segment = segment;
    this.whole = segment.length() <= SegmentReader.WHOLE ? reader.read(segment) : null;
  }

  /** Makes a stream of a segment whose bytes were fetched before. */
  public SegmentInputStream(Segment segment, byte[] whole) {
    this.reader = null;
    this.segment = segment;
    this.whole = whole;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  @Override
  public synchronized int read(byte[] buffer, int offset, int length) throws IOException {
    if (length == 0) {
      return 0;
    }
    long left = segment.length() - position;
    if (left <= 0) {
      return -1;
    }
    int n = (int) Math.min(length, left);
    if (whole != null) {
      System.arraycopy(whole, (int) position, buffer, offset, n);
    } else {
      if (position < aheadStart || position >= aheadStart + ahead.length) {
        boolean goesOn = ahead.length > 0 && position == aheadStart + ahead.length;
        fill((int) Math.min(goesOn ? Math.min(2 * ahead.length, SegmentReader.CHUNK) : AHEAD, left));
      }
      n = (int) Math.min(n, aheadStart + ahead.length - position);
      System.arraycopy(ahead, (int) (position - aheadStart), buffer, offset, n);
    }
    position += n;
    return n;
  }

  private void fill(int length) throws IOException {
    ahead = new byte[length];
    aheadStart = position;
    segment = reader.readAt(segment, position, ahead, 0, length);
    if (checkedTo == position) {
      crc.update(ahead, 0, length);
      checkedTo += length;
      if (checkedTo == segment.length()) {
        reader.check(segment, crc);
      }
    } else {
      checkedTo = -1;
    }
  }

  @Override
  public synchronized int read(long at, byte[] buffer, int offset, int length) throws IOException {
    if (at < 0 || at >= segment.length()) {
      return -1;
    }
    int n = (int) Math.min(length, segment.length() - at);
    if (whole != null) {
      System.arraycopy(whole, (int) at, buffer, offset, n);
    } else {
      segment = reader.readAt(segment, at, buffer, offset, n);
    }
    return n;
  }

  @Override
  public synchronized void seek(long to) throws IOException {
    if (to < 0 || to > segment.length()) {
      throw new EOFException("Cannot seek to " + to + " of " + segment.length() + " bytes of " + segment.path());
    }
    position = to;
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
    return (int) Math.min(Integer.MAX_VALUE, segment.length() - position);
  }
}
