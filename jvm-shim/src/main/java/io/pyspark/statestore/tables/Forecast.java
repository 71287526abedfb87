package io.pyspark.statestore.tables;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;

/**
 * When the SSTs of a store are uploaded before their snapshot: so long before it that little of what is uploaded goes
 * again before it is named.
 *
 * <p>RocksDB merges what it has flushed as soon as there are a few files of it, and what it has merged stays for long.
 * How soon and how long differs by query, and so does the time from one snapshot to the next. So it is looked at: had
 * uploads begun at some time before each of the last snapshots, what RocksDB has deleted from then on would have been
 * wasted, and what the snapshot has named would not. The longest time with little waste is chosen, and the next
 * snapshot is expected as soon as the last ones have come. What a snapshot has named is needed, and is uploaded at
 * once.
 *
 * <p>Times are milliseconds of one clock. The caller sees to it that one thread at a time is here.
 */
final class Forecast {
  /** So many snapshots are looked at, and more where they have few files. */
  private static final int SNAPSHOTS = 4;

  /** Few files are less than so many. */
  private static final int FEW = 128;

  /** Of one snapshot so many files are looked at that were deleted before it, and as many that it names. */
  private static final int MOST = 1024;

  /** The part of all uploaded bytes that may be wasted. */
  static final double MOST_WASTED = 0.1;

  /** Tests allow more. */
  static volatile double mostWasted = MOST_WASTED;

  /**
   * What became of a file between two snapshots, in milliseconds before the second one.
   *
   * @param deleted zero where the snapshot has named it
   */
  private record Fate(long bytes, long created, long deleted) {}

  private record Deleted(long bytes, long createdMs, long deletedMs) {}

  /** Of the files of each snapshot, first what was deleted. */
  private final Deque<List<Fate>> fates = new ArrayDeque<>();

  private final Deque<Deleted> sinceSnapshot = new ArrayDeque<>();
  private final Deque<Long> intervals = new ArrayDeque<>();

  /** A file that is deleted sooner is never uploaded. */
  private final long graceMs;

  private boolean hasSnapshot;
  private long snapshotMs;
  private int named;

  /** How long before a snapshot uploads begin; found anew by whoever asks first after something has changed. */
  private long leadMs = Long.MAX_VALUE;

  private boolean isLeadOld;

  Forecast(long graceMs) {
    this.graceMs = graceMs;
  }

  /** RocksDB has deleted a file that no snapshot has named. */
  void deleted(long bytes, long createdMs, long nowMs) {
    keep(sinceSnapshot, new Deleted(bytes, createdMs, nowMs), MOST);
  }

  /** A snapshot is taken. What it names, and none before it has, follows by {@link #named}. */
  void snapshot(long nowMs) {
    if (hasSnapshot) {
      keep(intervals, nowMs - snapshotMs, SNAPSHOTS);
    }
    List<Fate> now = new ArrayList<>();
    for (Deleted each : sinceSnapshot) {
      now.add(new Fate(each.bytes, nowMs - each.createdMs, Math.max(1, nowMs - each.deletedMs)));
    }
    sinceSnapshot.clear();
    if (!fates.isEmpty() && fates.getLast().isEmpty()) {
      fates.removeLast(); // a snapshot without any file says nothing
    }
    while (fates.size() >= SNAPSHOTS && filesAfterTheOldest() >= FEW) {
      fates.removeFirst();
    }
    fates.addLast(now);
    hasSnapshot = true;
    snapshotMs = nowMs;
    named = 0;
    isLeadOld = true;
  }

  /** How many snapshots are remembered. */
  int snapshots() {
    return fates.size();
  }

  private int filesAfterTheOldest() {
    return fates.stream().skip(1).mapToInt(List::size).sum();
  }

  /** The snapshot that was taken last names a file. */
  void named(long bytes, long createdMs) {
    if (named++ < MOST) {
      fates.getLast().add(new Fate(bytes, snapshotMs - createdMs, 0));
      isLeadOld = true;
    }
  }

  private static <T> void keep(Deque<T> all, T next, int most) {
    if (all.size() == most) {
      all.removeFirst();
    }
    all.addLast(next);
  }

  /** The longest time before a snapshot with which little is wasted: one at which a file was deleted, or any. */
  private long longest() {
    List<Fate> uploaded =
        fates.stream()
            .flatMap(Collection::stream)
            .filter(each -> each.deleted < each.created - graceMs)
            .sorted(Comparator.comparingLong(Fate::deleted))
            .toList();
    long longest = 0;
    double bytes = 0;
    double wasted = 0;
    long before = -1;
    for (Fate each : uploaded) {
      if (each.deleted > before && wasted <= mostWasted * bytes) {
        // What was deleted at that time would not have been uploaded yet.
        longest = each.deleted;
      }
      before = each.deleted;
      bytes += each.bytes;
      wasted += each.deleted > 0 ? each.bytes : 0;
    }
    return wasted <= mostWasted * bytes ? Long.MAX_VALUE : longest;
  }

  /** Whether it is time to upload what the next snapshot may name. */
  boolean isTime(long nowMs) {
    if (isLeadOld) {
      leadMs = longest();
      isLeadOld = false;
    }
    if (leadMs == Long.MAX_VALUE) {
      return true;
    }
    double interval = intervals.stream().mapToLong(Long::longValue).average().orElse(0);
    return snapshotMs + interval - nowMs <= leadMs;
  }
}
