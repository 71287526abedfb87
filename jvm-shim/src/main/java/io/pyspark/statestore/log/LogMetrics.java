package io.pyspark.statestore.log;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/** What a log has done since it was opened. */
public final class LogMetrics {
  private final LongAdder groups = new LongAdder();
  private final LongAdder commits = new LongAdder();
  private final LongAdder segments = new LongAdder();
  private final LongAdder writeNanos = new LongAdder();
  private final LongAdder waitNanos = new LongAdder();
  private final LongAdder refreshes = new LongAdder();
  private final LongAdder completeRefreshes = new LongAdder();
  private final LongAdder cancelledCommits = new LongAdder();
  private final LongAdder carriedOver = new LongAdder();
  private final LongAdder unlinked = new LongAdder();
  private final LongAdder relocatedSegments = new LongAdder();
  private final LongAdder relocatedBytes = new LongAdder();
  private final LongAdder failedDeletes = new LongAdder();
  private final AtomicLong recentWriteNanos = new AtomicLong();

  void groupWritten(List<Commit> group, long nanos) {
    long now = System.nanoTime();
    groups.increment();
    commits.add(group.size());
    writeNanos.add(nanos);
    recentWriteNanos.updateAndGet(recent -> recent == 0 ? nanos : (7 * recent + nanos) / 8);
    for (Commit commit : group) {
      segments.add(commit.items().size());
      waitNanos.add(now - commit.queuedAtNanos());
    }
  }

  /** How long writing and flushing a group takes these days, in nanoseconds. */
  long recentWriteNanos() {
    return recentWriteNanos.get();
  }

  void refreshed(boolean complete) {
    refreshes.increment();
    if (complete) {
      completeRefreshes.increment();
    }
  }

  void cancelled() {
    cancelledCommits.increment();
  }

  void carriedOver(int tombstones) {
    carriedOver.add(tombstones);
  }

  void unlinked() {
    unlinked.increment();
  }

  void relocated(int count, long bytes) {
    relocatedSegments.add(count);
    relocatedBytes.add(bytes);
  }

  void deleteFailed() {
    failedDeletes.increment();
  }

  /** Counts by name; times are in nanoseconds. */
  public Map<String, Long> snapshot() {
    Map<String, Long> values = new LinkedHashMap<>();
    values.put("groups", groups.sum());
    values.put("commits", commits.sum());
    values.put("segments", segments.sum());
    values.put("writeNanos", writeNanos.sum());
    values.put("waitNanos", waitNanos.sum());
    values.put("refreshes", refreshes.sum());
    values.put("completeRefreshes", completeRefreshes.sum());
    values.put("cancelledCommits", cancelledCommits.sum());
    values.put("carriedOverTombstones", carriedOver.sum());
    values.put("unlinkedFiles", unlinked.sum());
    values.put("relocatedSegments", relocatedSegments.sum());
    values.put("relocatedBytes", relocatedBytes.sum());
    values.put("failedDeletes", failedDeletes.sum());
    return values;
  }
}
