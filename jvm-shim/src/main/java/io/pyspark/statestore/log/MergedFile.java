package io.pyspark.statestore.log;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * What this process knows of one physical file under {@code _merged/}. Its counts are guarded by the {@link Index}
 * that it belongs to.
 */
public final class MergedFile {
  /** Who may still append to the file. */
  enum Writer {
    /** A lane of this process has it open. */
    THIS_PROCESS,
    /** Another process; whether it still writes is known from time only (rule 7). */
    OTHER,
    /** Nobody: it is sealed, or this process has given it up. */
    NOBODY
  }

  private final String name;
  final List<Segment> segments = new ArrayList<>();
  final Set<Tombstone> tombstones = new LinkedHashSet<>();
  long liveBytes;
  int liveCount;

  private volatile Writer writer;
  private volatile long size;
  private volatile long lastTrailer;
  private volatile long changedAtMs;
  private volatile boolean wholeIndexRead;
  private volatile boolean seen;
  private volatile boolean indexOnly;

  MergedFile(String name, Writer writer, long nowMs) {
    this.name = name;
    this.writer = writer;
    this.changedAtMs = nowMs;
    this.wholeIndexRead = writer == Writer.THIS_PROCESS;
    this.seen = writer == Writer.OTHER;
  }

  /** The file's name in {@code _merged/}. */
  public String name() {
    return name;
  }

  /** Physical bytes that are known of. */
  public long size() {
    return size;
  }

  Writer writer() {
    return writer;
  }

  long lastTrailer() {
    return lastTrailer;
  }

  boolean wholeIndexRead() {
    return wholeIndexRead;
  }

  /** This process has appended a group, so that listings have shown the file since. */
  void appended(long newSize) {
    size = newSize;
    seen = true;
  }

  /** Whether a listing that does not show the file says that it is gone: not before its first group is visible. */
  boolean seen() {
    return seen;
  }

  void sealed() {
    writer = Writer.NOBODY;
  }

  /**
   * This process will not append again, after a write that may or may not have reached the file: what is in it must
   * be read back (rule 1).
   */
  void givenUp(long lastGoodTrailer) {
    lastTrailer = lastGoodTrailer;
    wholeIndexRead = false;
    writer = Writer.NOBODY;
  }

  /** The file repeats the entries of others: that nothing counts as living in it says nothing about its use. */
  void indexOnly() {
    indexOnly = true;
  }

  boolean isIndexOnly() {
    return indexOnly;
  }

  /** The index of the file was read up to {@code trailer}. */
  void read(long newSize, long trailer, boolean isSealed, long nowMs) {
    if (newSize != size || trailer != lastTrailer) {
      changedAtMs = nowMs;
    }
    size = newSize;
    lastTrailer = trailer;
    wholeIndexRead = true;
    if (isSealed) {
      writer = Writer.NOBODY;
    }
  }

  /** Rule 7: nobody appends to it any more, as far as this process may assume. */
  boolean isClosed(long nowMs, long closedAfterMs) {
    return switch (writer) {
      case NOBODY -> true;
      case THIS_PROCESS -> false;
      case OTHER -> nowMs - changedAtMs >= closedAfterMs;
    };
  }

  @Override
  public String toString() {
    return name;
  }
}
