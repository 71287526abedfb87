package io.pyspark.statestore.tables;

import java.util.ArrayDeque;
import java.util.Deque;

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
  /** So many files are looked at. */
  static final int FILES = 128;

  /** The part of all uploaded bytes that may be wasted. */
  static final double MOST_WASTED = 0.1;

  /** Tests allow more. */
  static volatile double mostWasted = MOST_WASTED;

  private static final int INTERVALS = 4;

  /**
   * What became of a file between two snapshots, in milliseconds before the second one.
   *
   * @param deleted zero where the snapshot has named it
   */
  private record Fate(long bytes, long created, long deleted, boolean isNamed) {}

  private record Deleted(long bytes, long createdMs, long deletedMs) {}

  private final Deque<Fate> fates = new ArrayDeque<>();
  private final Deque<Deleted> sinceSnapshot = new ArrayDeque<>();
  private final Deque<Long> intervals = new ArrayDeque<>();

  /** A file that is deleted sooner is never uploaded. */
  private final long graceMs;

  private boolean hasSnapshot;
  private long snapshotMs;

  /** How long before a snapshot uploads begin; found anew by whoever asks first after something has changed. */
  private long leadMs = Long.MAX_VALUE;

  private boolean isLeadOld;

  Forecast(long graceMs) {
    this.graceMs = graceMs;
  }

  /** RocksDB has deleted a file that no snapshot has named. */
  void deleted(long bytes, long createdMs, long nowMs) {
    if (sinceSnapshot.size() == FILES) {
      sinceSnapshot.removeFirst();
    }
    sinceSnapshot.addLast(new Deleted(bytes, createdMs, nowMs));
  }

  /** A snapshot is taken. What it names, and none before it has, follows by {@link #named}. */
  void snapshot(long nowMs) {
    if (hasSnapshot) {
      keep(intervals, nowMs - snapshotMs, INTERVALS);
    }
    for (Deleted each : sinceSnapshot) {
      keep(fates, new Fate(each.bytes, nowMs - each.createdMs, nowMs - each.deletedMs, false), FILES);
    }
    sinceSnapshot.clear();
    hasSnapshot = true;
    snapshotMs = nowMs;
    isLeadOld = true;
  }

  /** The snapshot that was taken last names a file. */
  void named(long bytes, long createdMs) {
    keep(fates, new Fate(bytes, snapshotMs - createdMs, 0, true), FILES);
    isLeadOld = true;
  }

  private static <T> void keep(Deque<T> all, T next, int most) {
    if (all.size() == most) {
      all.removeFirst();
    }
    all.addLast(next);
  }

  /** The longest time before a snapshot with which little is wasted: one at which a file was deleted, or any. */
  private long longest() {
    if (isLittle(Long.MAX_VALUE)) {
      return Long.MAX_VALUE;
    }
    return fates.stream().mapToLong(Fate::deleted).filter(this::isLittle).max().orElse(0);
  }

  private boolean isLittle(long lead) {
    double uploaded = 0;
    double wasted = 0;
    for (Fate each : fates) {
      if (each.deleted < Math.min(lead, each.created - graceMs)) {
        uploaded += each.bytes;
        wasted += each.isNamed ? 0 : each.bytes;
      }
    }
    return wasted <= mostWasted * uploaded;
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
