package io.pyspark.statestore.index;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.format.Entry;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * What this process knows of one physical file under {@code _merged/}. The {@link Index} that it belongs to guards its
 * counts.
 */
public final class MergedFile {
  /** Who may still append to the file. */
  public enum Writer {
    /** A lane of this process has it open. */
    THIS_PROCESS,
    /** Another process. Only time tells whether it still writes (rule 7). */
    OTHER,
    /** No process: the file is sealed, or this process has left it after a failed write. */
    NOBODY
  }

  /**
   * Another process's file that is so old counts as closed, however short a time this process has known it. Both its
   * newest stamp and its modification time by the file system's clock have to say so, because one clock may be wrong.
   */
  static final long ABANDONED_MS = 24 * 3_600_000L;

  /** Counts the bytes of all files. */
  interface Keeper {
    /** A file's bytes have changed, or what kind of file it is. */
    void recount(MergedFile file);
  }

  private static final Clocks.Moment NEVER = new Clocks.Moment(0, 0);
  private static final Pattern NAME = Pattern.compile("\\d+-([0-9a-f]{16})-");

  private final String name;

  /** The index that knows the file, or null. */
  volatile Keeper index;

  /** What its entries there say instead of its name. */
  int number;

  int liveCount;
  long liveBytesWithEntries;
  int tombstoneCount;

  /** How many of its tombstones are proven unneeded. */
  int unneededCount;

  /** What the index has counted of its bytes so far. */
  long countedBytes;

  long countedGarbage;

  private final long writerId;
  private volatile Writer writer;
  private volatile long size;
  private volatile long lastTrailer;

  /** By the clock that does not jump, as are all times here. */
  private volatile long changedAtMs;

  private volatile long readAtMs;
  private volatile long lastStamp;
  private volatile long groupStamp;
  private volatile long changedIn;
  private volatile boolean wholeIndexRead;
  private volatile boolean accounted = true;
  private volatile boolean seen;

  /** Whether its writer says what it appends, so that nobody has to read the file's end. */
  private volatile boolean reported;

  private volatile boolean sealed;
  private volatile boolean ownName;
  private volatile boolean indexOnly;
  private volatile Set<String> covered = Set.of();
  private volatile List<MergedFile> foreign;
  private volatile long listedLength = -1;
  private volatile long listedModification = -1;

  /** How much earlier it was modified than the file that was modified last. */
  private volatile long olderThanNewestMs;

  private volatile long deadSinceMs;
  private volatile long ignoredBytes;

  public MergedFile(String name, Writer writer, Clocks.Moment now) {
    this.name = name;
    this.writerId = writerOf(name);
    this.writer = writer;
    this.changedAtMs = now.monotonicMs();
    this.readAtMs = now.monotonicMs();
    this.lastStamp = now.wallMs() << 16;
    this.wholeIndexRead = writer == Writer.THIS_PROCESS;
    this.seen = writer != Writer.THIS_PROCESS;
    this.ownName = writer == Writer.THIS_PROCESS;
  }

  /** The writer's id in a file's name; 0 where the name has none. */
  public static long writerOf(String name) {
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

  private void size(long bytes) {
    size = bytes;
    Keeper knows = index;
    if (knows != null) {
      knows.recount(this);
    }
  }

  public Writer writer() {
    return writer;
  }

  public long lastTrailer() {
    return lastTrailer;
  }

  public boolean wholeIndexRead() {
    return wholeIndexRead;
  }

  public long writerId() {
    return writerId;
  }

  /** Whether all its bytes are accounted for. If not, they may be a damaged group, and the file stays (rule 8). */
  public boolean isAccounted() {
    return accounted;
  }

  public void accounted(boolean isAccounted) {
    accounted = isAccounted;
  }

  /**
   * This process has appended a group. From now on listings show the file.
   *
   * @param refresh number of the newest refresh that has begun
   */
  public void appended(long newSize, long stamp, long refresh) {
    size(newSize);
    lastStamp = stamp;
    changedIn = refresh;
    seen = true;
    grouped(stamp);
  }

  /** A group was found or written that has this stamp. */
  public void grouped(long stamp) {
    groupStamp = Math.max(groupStamp, stamp);
  }

  /** The highest stamp of its groups. Every process that has read the file says the same. */
  public long groupStamp() {
    return groupStamp;
  }

  /**
   * Its writer, another process, has reported a group or that the file is sealed.
   *
   * @param refresh number of the newest refresh that has begun
   */
  public void reported(long newSize, long trailer, long stamp, boolean isSealed, Clocks.Moment now, long refresh) {
    reported = true;
    wholeIndexRead = true;
    seen = true;
    if (newSize > size) {
      size(newSize);
      lastTrailer = trailer;
      lastStamp = Math.max(lastStamp, stamp);
      changedAtMs = now.monotonicMs();
      readAtMs = now.monotonicMs();
      changedIn = refresh;
      ownName = true;
      grouped(stamp);
    }
    if (isSealed) {
      sealed = true;
      writer = Writer.NOBODY;
    }
  }

  /** Its writer is lost, or has left it. */
  public void isNotReported() {
    reported = false;
  }

  public boolean isReported() {
    return reported;
  }

  /** The index service has told of it. */
  public void told(long newSize, boolean isSealed) {
    if (writer == Writer.THIS_PROCESS) {
      return;
    }
    size(Math.max(size, newSize));
    if (isSealed) {
      sealed();
    }
  }

  /** Number of the newest refresh that had begun when the file last changed, as far as is known. */
  public long changedIn() {
    return changedIn;
  }

  /**
   * Whether a listing that does not show the file means that it is gone. Before its first group is visible it does not.
   */
  public boolean seen() {
    return seen;
  }

  public void sealed() {
    writer = Writer.NOBODY;
    sealed = true;
  }

  /** Whether a seal ends it, so that nothing in it ever changes. */
  public boolean isSealed() {
    return sealed;
  }

  /** The file's name was compared with its header; if they differ, somebody has renamed or copied the file. */
  public void hasOwnName(boolean does) {
    ownName = does;
  }

  /**
   * Whether an index-only file may repeat its entries: they are all known and never change, they are this checkpoint's,
   * and they will be found under this name.
   */
  public boolean mayBeRepeated() {
    return sealed && ownName && wholeIndexRead && accounted && !indexOnly && foreign == null;
  }

  /**
   * This process has left the file after a write that may or may not have reached it, so its end must be read back
   * (rule 1).
   */
  public void left(long lastGoodTrailer) {
    lastTrailer = lastGoodTrailer;
    wholeIndexRead = false;
    // It was closed, so listings show it from now on, or never will: an object store may not have made it.
    seen = true;
    writer = Writer.NOBODY;
  }

  /** A file that a reference file refers to, and how long it is at least. */
  public record ForeignFile(String path, long size) {}

  /** The file is index-only: it repeats the entries of these files, and nothing lives in it. */
  public void indexOnly(Collection<String> names) {
    indexOnly = true;
    covered = Set.copyOf(names);
    size(size);
  }

  public boolean isIndexOnly() {
    return indexOnly;
  }

  /** Names of the files whose entries an index-only file repeats; of other files, none. */
  public Set<String> covered() {
    return covered;
  }

  /**
   * The file is a reference file: what lives in it is read from files of other checkpoints, which have these paths, or
   * from files of this one, which go by their names.
   */
  public void references(List<String> paths, List<Entry> entries) {
    List<MergedFile> files = paths.stream().map(path -> new MergedFile(path, Writer.NOBODY, NEVER)).toList();
    for (Entry entry : entries) {
      MergedFile file = files.get(entry.fileRef() - 1);
      file.size = Math.max(file.size, entry.offset() + entry.length());
    }
    foreign = files;
    size(size);
  }

  public boolean isReference() {
    return foreign != null;
  }

  /** As {@link #references(List, List)}, of files whose lengths are known. */
  public void references(List<ForeignFile> files) {
    foreign =
        files.stream()
            .map(
                file -> {
                  MergedFile known = new MergedFile(file.path(), Writer.NOBODY, NEVER);
                  known.size = file.size();
                  return known;
                })
            .toList();
    size(size);
  }

  /** The files that it refers to; none where it is no reference file. */
  public List<ForeignFile> foreignFiles() {
    return foreign == null ? List.of() : foreign.stream().map(file -> new ForeignFile(file.name, file.size)).toList();
  }

  /** Names of the files of this checkpoint that it refers to: it gives their segments second paths. */
  Set<String> ownReferences() {
    return foreign == null
        ? Set.of()
        : foreign.stream().filter(file -> !file.isForeign()).map(MergedFile::name).collect(Collectors.toSet());
  }

  /** The file that holds the bytes of a reference file's entry. That of another checkpoint has its path for a name. */
  MergedFile foreign(int fileRef) {
    // Only an index-only file that takes this for another kind of file has 0, or more than there are.
    return fileRef > 0 && fileRef <= foreign.size() ? foreign.get(fileRef - 1) : this;
  }

  /** Whether this is a file of another checkpoint. */
  public boolean isForeign() {
    return name.startsWith("/");
  }

  /**
   * The index of the file was read up to {@code trailer}.
   *
   * @param beganMs when the file was opened: the read may have missed what was appended later
   * @param endedMs when the read ended: what it found may be as young as that
   * @param refresh number of the refresh that read it
   */
  public void read(
      long newSize, long trailer, boolean isSealed, long newestStamp, long beganMs, long endedMs, long refresh) {
    if (newSize != size || trailer != lastTrailer || !wholeIndexRead) {
      changedAtMs = endedMs;
      changedIn = refresh;
    }
    size(newSize);
    lastTrailer = trailer;
    lastStamp = newestStamp;
    readAtMs = beganMs;
    wholeIndexRead = true;
    if (isSealed) {
      sealed();
    }
  }

  /** How many bytes after the last whole group are ignored: a torn tail, or damage at the end. */
  public void ignored(long bytes) {
    ignoredBytes = bytes;
  }

  public long ignoredBytes() {
    return ignoredBytes;
  }

  /** An index-only file has repeated the whole index of this file, which is sealed. */
  public void readElsewhere(long listedSize, long newestStamp, long refresh) {
    size(listedSize);
    lastStamp = newestStamp;
    changedIn = refresh;
    wholeIndexRead = true;
    ownName = true;
    sealed();
  }

  /**
   * A listing has shown the file; returns whether it looks different from the last listing.
   *
   * @param newestModification of all files in the listing
   */
  public boolean listed(long length, long modification, long newestModification) {
    olderThanNewestMs = newestModification - modification;
    boolean changed = length != listedLength || modification != listedModification;
    listedLength = length;
    listedModification = modification;
    return changed;
  }

  /** The highest stamp in it, as far as is known. */
  public long lastStamp() {
    return lastStamp;
  }

  /** Whether only another read of its end can tell if it is closed; see {@link Rules#mustBeRead}. */
  boolean mayHaveBecomeClosed(Clocks.Moment now, long closedAfterMs) {
    return writer == Writer.OTHER && !isClosed(now, closedAfterMs) && now.monotonicMs() - changedAtMs >= closedAfterMs;
  }

  /** Rule 7; see {@link Rules#isClosed}. */
  boolean isClosed(Clocks.Moment now, long closedAfterMs) {
    return switch (writer) {
      case NOBODY -> true;
      case THIS_PROCESS -> false;
      case OTHER ->
          readAtMs - changedAtMs >= closedAfterMs
              || Math.min(now.wallMs() - HybridClock.millisOf(lastStamp), olderThanNewestMs)
                  >= Math.max(closedAfterMs, ABANDONED_MS);
    };
  }

  /** Notes whether nothing lives in the file; returns since when nothing does, or 0. */
  public long dead(boolean isDead, Clocks.Moment now) {
    deadSinceMs = isDead ? (deadSinceMs == 0 ? now.monotonicMs() : deadSinceMs) : 0;
    return deadSinceMs;
  }

  public long deadSinceMs() {
    return deadSinceMs;
  }

  @Override
  public String toString() {
    return name;
  }
}
