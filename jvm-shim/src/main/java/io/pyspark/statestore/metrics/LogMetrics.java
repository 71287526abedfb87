package io.pyspark.statestore.metrics;

import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.Segment;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/** Counts what a log has done since it was opened. */
public final class LogMetrics {
  /** Hears what all logs of this process do. */
  private static final MetricsListener<Listener> LISTENER = new MetricsListener<>("fileMerging");

  /** What is counted. */
  public enum Count {
    /** Groups that were made durable. */
    GROUPS("groups"),
    COMMITS("commits"),
    /** Segments in these groups, relocated ones included. */
    SEGMENTS("segments"),
    /** Payload of these segments. */
    WRITTEN_BYTES("writtenBytes"),
    /** Groups that could not be made durable. Their commits failed or were written again. */
    FAILED_GROUPS("failedGroups"),
    /** Logical files that were cancelled before they were durable. */
    CANCELLED_UPLOADS("cancelledUploads"),
    /** Commits that stopped early, while their bytes were being written into a group. */
    CANCELLED_COMMITS("cancelledCommits"),
    REFRESHES("refreshes"),
    /** Refreshes that also read the tails of all files that others may append to. */
    COMPLETE_REFRESHES("completeRefreshes"),
    /** Questions to the index service about what others have written. */
    INDEX_QUESTIONS("indexQuestions"),
    /** Bytes of SSTs that were read of merged files when a store was loaded. */
    FETCHED_BYTES("fetchedBytes"),
    /** Bytes of SSTs that the host had when a store was loaded. */
    CACHED_BYTES("cachedBytes"),
    /** Bytes of SSTs that were left out when a store was loaded, because it can be read without them. */
    LEFT_OUT_BYTES("leftOutBytes"),
    /** Those of them that were fetched because something needed them. */
    DEMANDED_BYTES("demandedBytes"),
    /** Those of them that were fetched because they were about to be read. */
    LOOK_AHEAD_BYTES("lookAheadBytes"),
    /** Keys that stores were asked for before an operator read them. */
    LOOK_AHEAD_KEYS("lookAheadKeys"),
    /** Blocks that were fetched, or read from a slow disk, for them. */
    LOOK_AHEAD_FETCHED_BLOCKS("lookAheadFetchedBlocks"),
    /** Those of them that were fetched in the background. */
    HYDRATED_BYTES("hydratedBytes"),
    /** Bytes of rows of heap stores that were moved to the local disk. */
    HEAP_SPILL_WRITTEN_BYTES("heapSpillWrittenBytes"),
    /** How often some of them were read there. */
    HEAP_SPILL_READS("heapSpillReads"),
    /** Parts of SSTs that could not be fetched in the background, and are tried again. */
    FAILED_FETCHES("failedFetches"),
    /** SSTs that could not be completed: they were damaged, or gone for long. Their stores fail. */
    LOST_FILES("lostFiles"),
    /** Bytes of SSTs that were written before a snapshot named them. They are written bytes, too. */
    EARLY_BYTES("earlyBytes"),
    /** Those of them that were deleted because no snapshot is going to name them. */
    WASTED_BYTES("wastedBytes"),
    RELOCATED_SEGMENTS("relocatedSegments"),
    RELOCATED_BYTES("relocatedBytes"),
    UNLINKED_FILES("unlinkedFiles"),
    FAILED_DELETES("failedDeletes"),
    /** Tombstones that were written again, so that their file could be unlinked (rule 6). */
    CARRIED_OVER_TOMBSTONES("carriedOverTombstones");

    private final String key;

    Count(String key) {
      this.key = key;
    }

    /** Its name in {@link LogMetrics#snapshot()}. */
    public String key() {
      return key;
    }
  }

  /** Hears of everything as it happens, in the thread that does it, so it has to be quick. */
  public interface Listener {
    void counted(Count what, long by);

    /** A group was written and flushed. */
    void flushed(int segments, long nanos);

    /** A commit was made durable, so long after it was queued. */
    void committed(long waitedNanos);

    void refreshed(long nanos);
  }

  private final Map<Count, LongAdder> counts = new EnumMap<>(Count.class);

  /** What nobody has asked for yet, by the directory of the store. */
  private final Map<String, StoreFigures> byStore = new ConcurrentHashMap<>();

  private final LongAdder writeNanos = new LongAdder();
  private final LongAdder waitNanos = new LongAdder();
  private final LongAdder reportWaitNanos = new LongAdder();
  private final LongAdder refreshNanos = new LongAdder();
  private final AtomicLong recentWriteNanos = new AtomicLong();
  private volatile long lastUsedNanos = System.nanoTime();
  private volatile Pass lastPass;

  /**
   * A cleaning pass that is over.
   *
   * @param endedMs by the wall clock of this process, only to be shown
   * @param stopped whether it stopped before its end
   */
  public record Pass(long endedMs, long tookMs, boolean stopped) {}

  public LogMetrics() {
    for (Count what : Count.values()) {
      counts.put(what, new LongAdder());
    }
  }

  /** Tells a listener what all logs of this process do from now on. It replaces the listener before it. */
  public static void listen(Listener listener) {
    LISTENER.set(listener);
  }

  /** Stops telling a listener. */
  public static void stopListening(Listener listener) {
    LISTENER.remove(listener);
  }

  /**
   * A commit of a group.
   *
   * @param queuedAtNanos when it was queued
   * @param segments how many it has
   * @param bytes of these
   * @param written the bytes of those that are no moved ones, by path
   */
  public record Written(long queuedAtNanos, int segments, long bytes, Map<String, Long> written) {}

  /**
   * A group is durable.
   *
   * @param beganFile whether a new file begins with it
   */
  public void groupWritten(List<Written> group, boolean beganFile, long nanos) {
    long now = System.nanoTime();
    int segments = group.stream().mapToInt(Written::segments).sum();
    lastUsedNanos = now;
    recentWriteNanos.updateAndGet(recent -> recent == 0 ? nanos : (7 * recent + nanos) / 8);
    writeNanos.add(nanos);
    add(Count.GROUPS, 1);
    add(Count.COMMITS, group.size());
    add(Count.SEGMENTS, segments);
    add(Count.WRITTEN_BYTES, group.stream().mapToLong(Written::bytes).sum());
    LISTENER.tell(listener -> listener.flushed(segments, nanos));
    boolean begins = beganFile;
    for (Written commit : group) {
      long waited = now - commit.queuedAtNanos();
      waitNanos.add(waited);
      LISTENER.tell(listener -> listener.committed(waited));
      begins &= !tellOfStores(commit, begins, waited);
    }
  }

  /** Returns whether there was a store to tell of: moved segments are nobody's. */
  private boolean tellOfStores(Written commit, boolean beganFile, long waited) {
    commit.written.forEach((path, bytes) -> of(path, StoreFigures.written(bytes)));
    commit.written.keySet().stream().findFirst().ifPresent(path -> of(path, StoreFigures.committed(beganFile, waited)));
    return !commit.written.isEmpty();
  }

  private void of(String path, StoreFigures figures) {
    byStore.merge(LogicalPaths.store(path), figures, StoreFigures::plus);
  }

  /**
   * What this process has done for a store since this was last called.
   *
   * @param store its directory, relative to {@code state/}
   */
  public StoreFigures takeOf(String store) {
    StoreFigures taken = byStore.remove(store);
    return taken == null ? StoreFigures.NONE : taken;
  }

  /** A task has waited for the report of its commit, mostly when everything else was done. */
  public void waitedForReport(long nanos) {
    reportWaitNanos.add(nanos);
  }

  public void groupFailed() {
    add(Count.FAILED_GROUPS, 1);
  }

  public void uploadCancelled() {
    add(Count.CANCELLED_UPLOADS, 1);
  }

  public void cancelled() {
    add(Count.CANCELLED_COMMITS, 1);
  }

  /** How long writing and flushing a group takes at present, in nanoseconds. */
  public long recentWriteNanos() {
    return recentWriteNanos.get();
  }

  /**
   * A refresh has succeeded.
   *
   * @param complete whether it read the tails of all files that others may append to
   * @param nanos how long it took
   */
  public void refreshed(boolean complete, long nanos) {
    lastUsedNanos = System.nanoTime();
    refreshNanos.add(nanos);
    add(Count.REFRESHES, 1);
    add(Count.COMPLETE_REFRESHES, complete ? 1 : 0);
    LISTENER.tell(listener -> listener.refreshed(nanos));
  }

  /** The index service has answered a question. */
  public void asked() {
    lastUsedNanos = System.nanoTime();
    add(Count.INDEX_QUESTIONS, 1);
  }

  /** So many bytes of an SST were read of its merged file. */
  public void fetched(Segment segment, long bytes) {
    add(Count.FETCHED_BYTES, bytes);
    of(segment.path(), StoreFigures.fetched(bytes));
  }

  /** What rows will ask a store for was fetched before. */
  public void lookedAhead(StoreFigures.LookAhead done) {
    add(Count.LOOK_AHEAD_KEYS, done.keys());
    add(Count.LOOK_AHEAD_FETCHED_BLOCKS, done.blocks());
  }

  /** Rows of a heap store were moved to the local disk, and read there. */
  public void spilled(long writtenBytes, long reads) {
    add(Count.HEAP_SPILL_WRITTEN_BYTES, writtenBytes);
    add(Count.HEAP_SPILL_READS, reads);
  }

  /** The host had an SST. */
  public void cached(Segment segment) {
    add(Count.CACHED_BYTES, segment.length());
    of(segment.path(), StoreFigures.cached(segment.length()));
  }

  /** A store was loaded without these bytes. */
  public void leftOut(long bytes) {
    add(Count.LEFT_OUT_BYTES, bytes);
  }

  /** What was left out has been fetched: demanded, ahead or in the background. */
  public void completed(long bytes, Count why) {
    add(why, bytes);
  }

  /** Something that was left out could not be fetched in the background. */
  public void fetchFailed() {
    add(Count.FAILED_FETCHES, 1);
  }

  /** An SST of which something was left out cannot be completed. */
  public void lost() {
    add(Count.LOST_FILES, 1);
  }

  /** An SST was written before its snapshot. */
  public void uploadedEarly(long bytes) {
    add(Count.EARLY_BYTES, bytes);
  }

  /** An SST that was written before its snapshot is not needed. */
  public void uploadedInVain(long bytes) {
    add(Count.WASTED_BYTES, bytes);
  }

  public void unlinked() {
    add(Count.UNLINKED_FILES, 1);
  }

  public void relocated(int count, long bytes) {
    add(Count.RELOCATED_SEGMENTS, count);
    add(Count.RELOCATED_BYTES, bytes);
  }

  public void deleteFailed() {
    add(Count.FAILED_DELETES, 1);
  }

  public void carriedOver(int tombstones) {
    add(Count.CARRIED_OVER_TOMBSTONES, tombstones);
  }

  public void cleaned(Pass pass) {
    lastPass = pass;
  }

  /** The last cleaning pass of this process; null before the first. */
  public Pass lastPass() {
    return lastPass;
  }

  private void add(Count what, long by) {
    if (by != 0) {
      counts.get(what).add(by);
      LISTENER.tell(listener -> listener.counted(what, by));
    }
  }

  public long count(Count what) {
    return counts.get(what).sum();
  }

  /** When a group was last written or the index last refreshed, by {@link System#nanoTime()}. */
  public long lastUsedNanos() {
    return lastUsedNanos;
  }

  /** All counts by name. Times are in nanoseconds. */
  public Map<String, Long> snapshot() {
    Map<String, Long> values = new LinkedHashMap<>();
    counts.forEach((what, count) -> values.put(what.key(), count.sum()));
    values.put("writeNanos", writeNanos.sum());
    values.put("waitNanos", waitNanos.sum());
    values.put("reportWaitNanos", reportWaitNanos.sum());
    values.put("refreshNanos", refreshNanos.sum());
    return values;
  }
}
