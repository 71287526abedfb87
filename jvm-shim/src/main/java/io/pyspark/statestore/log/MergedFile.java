package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Entry;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

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

  /**
   * Another process's file that is so old counts as closed, however short this process has known it. Both its newest stamp
   * and its modification time, by the file system's own clock, have to say so: one clock may be wrong.
   */
  static final long ABANDONED_MS = 24 * 3_600_000L;

  private static final Clocks.Moment NEVER = new Clocks.Moment(0, 0);
  private static final Pattern NAME = Pattern.compile("\\d+-([0-9a-f]{16})-");

  private final String name;
  final List<Segment> segments = new ArrayList<>();
  final Set<Tombstone> tombstones = new LinkedHashSet<>();
  long liveBytes;
  long liveBytesWithEntries;
  int liveCount;
  /** By tombstone the number of the first complete refresh that found nothing for it to hold down. */
  final Map<Tombstone, Long> idleSince = new HashMap<>(0);

  /** Those of its tombstones that will never be needed again. */
  final Set<Tombstone> unneeded = new HashSet<>(0);

  private final long writerId;
  private volatile Writer writer;
  private volatile long size;
  private volatile long lastTrailer;
  /** By the clock that does not jump, as all times here. */
  private volatile long changedAtMs;

  private volatile long readAtMs;
  private volatile long lastStamp;
  private volatile long changedIn;
  private volatile boolean wholeIndexRead;
  private volatile boolean accounted = true;
  private volatile boolean seen;
  private volatile boolean indexOnly;
  private volatile Set<String> covered = Set.of();
  private volatile List<MergedFile> foreign;
  private volatile long listedLength = -1;
  private volatile long listedModification = -1;
  /** By how much it was modified before the file that was modified last. */
  private volatile long olderThanNewestMs;
  private volatile long deadSinceMs;
  private volatile long ignoredBytes;

  MergedFile(String name, Writer writer, Clocks.Moment now) {
    this.name = name;
    this.writerId = writerOf(name);
    this.writer = writer;
    this.changedAtMs = now.monotonicMs();
    this.readAtMs = now.monotonicMs();
    this.lastStamp = now.wallMs() << 16;
    this.wholeIndexRead = writer == Writer.THIS_PROCESS;
    this.seen = writer != Writer.THIS_PROCESS;
  }

  /** The process that wrote a file, by the file's name; 0 where the name does not tell. */
  static long writerOf(String name) {
    Matcher parts = NAME.matcher(name);
    return parts.lookingAt() ? Long.parseUnsignedLong(parts.group(1), 16) : 0;
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

  long writerId() {
    return writerId;
  }

  /** Whether it is known what all of its bytes are; where not, they may be a damaged group, and the file stays (rule 8). */
  boolean isAccounted() {
    return accounted;
  }

  void accounted(boolean isAccounted) {
    accounted = isAccounted;
  }

  /**
   * This process has appended a group, so that listings have shown the file since.
   *
   * @param stamp of the group
   * @param refresh number of the newest refresh that has begun
   */
  void appended(long newSize, long stamp, long refresh) {
    size = newSize;
    lastStamp = stamp;
    changedIn = refresh;
    seen = true;
  }

  /** Number of the newest refresh that had begun when the file changed last, as far as is known. */
  long changedIn() {
    return changedIn;
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
    // It was closed, so a listing shows it from now on, or never will: an object store may not have made it.
    seen = true;
    writer = Writer.NOBODY;
  }

  /** The file repeats the entries of others: that nothing counts as living in it says nothing about its use. */
  void indexOnly(Collection<String> names) {
    indexOnly = true;
    covered = Set.copyOf(names);
  }

  boolean isIndexOnly() {
    return indexOnly;
  }

  /** The files whose entries an index-only file repeats. */
  Set<String> covered() {
    return covered;
  }

  /**
   * The file is a reference file: what lives in it is read from files of other checkpoints.
   *
   * @param paths of these
   * @param entries that refer to them
   */
  void references(List<String> paths, List<Entry> entries) {
    List<MergedFile> files = paths.stream().map(path -> new MergedFile(path, Writer.NOBODY, NEVER)).toList();
    for (Entry entry : entries) {
      MergedFile file = files.get(entry.fileRef() - 1);
      file.size = Math.max(file.size, entry.offset() + entry.length());
    }
    foreign = files;
  }

  boolean isReference() {
    return foreign != null;
  }

  /** The file of another checkpoint that an entry of a reference file means; its name is its path. */
  MergedFile foreign(int fileRef) {
    // 0, or more than there are, only where an index-only file has taken it for another kind of file.
    return fileRef > 0 && fileRef <= foreign.size() ? foreign.get(fileRef - 1) : this;
  }

  /** Whether this is a file of another checkpoint. */
  boolean isForeign() {
    return name.startsWith("/");
  }

  /**
   * The index of the file was read up to {@code trailer}.
   *
   * @param newestStamp of its groups
   * @param beganMs when it was opened: what was appended later may be missing
   * @param endedMs by when it has been read: what was read may be as young as that
   * @param refresh number of the refresh that read it
   */
  void read(
      long newSize, long trailer, boolean isSealed, long newestStamp, long beganMs, long endedMs, long refresh) {
    if (newSize != size || trailer != lastTrailer || !wholeIndexRead) {
      changedAtMs = endedMs;
      changedIn = refresh;
    }
    size = newSize;
    lastTrailer = trailer;
    lastStamp = newestStamp;
    readAtMs = beganMs;
    wholeIndexRead = true;
    if (isSealed) {
      writer = Writer.NOBODY;
    }
  }

  /** How many bytes after its last whole group do not exist: a torn tail, or damage at its end. */
  void ignored(long bytes) {
    ignoredBytes = bytes;
  }

  long ignoredBytes() {
    return ignoredBytes;
  }

  /** An index-only file has told all that is in this one, which is sealed. */
  void readElsewhere(long listedSize, long newestStamp, long refresh) {
    size = listedSize;
    lastStamp = newestStamp;
    changedIn = refresh;
    wholeIndexRead = true;
    writer = Writer.NOBODY;
  }

  /**
   * What a listing says of the file; whether that is something else than the last one said.
   *
   * @param newestModification of all files in the listing
   */
  boolean listed(long length, long modification, long newestModification) {
    olderThanNewestMs = newestModification - modification;
    boolean changed = length != listedLength || modification != listedModification;
    listedLength = length;
    listedModification = modification;
    return changed;
  }

  /** The highest stamp that is known to be in it. */
  long lastStamp() {
    return lastStamp;
  }

  /** Whether only another read of its end can tell if it is closed. */
  boolean mayHaveBecomeClosed(Clocks.Moment now, long closedAfterMs) {
    return writer == Writer.OTHER
        && !isClosed(now, closedAfterMs)
        && now.monotonicMs() - changedAtMs >= closedAfterMs;
  }

  /** Rule 7: nobody appends to it any more, as far as this process may assume. */
  boolean isClosed(Clocks.Moment now, long closedAfterMs) {
    return switch (writer) {
      case NOBODY -> true;
      case THIS_PROCESS -> false;
      case OTHER -> readAtMs - changedAtMs >= closedAfterMs
          || Math.min(now.wallMs() - HybridClock.millisOf(lastStamp), olderThanNewestMs)
              >= Math.max(closedAfterMs, ABANDONED_MS);
    };
  }

  /** Notes that nothing lives in the file, or that something does; since when nothing does, or 0. */
  long dead(boolean isDead, Clocks.Moment now) {
    deadSinceMs = isDead ? (deadSinceMs == 0 ? now.monotonicMs() : deadSinceMs) : 0;
    return deadSinceMs;
  }

  long deadSinceMs() {
    return deadSinceMs;
  }

  @Override
  public String toString() {
    return name;
  }
}
