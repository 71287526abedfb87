package io.pyspark.statestore.tab;

/**
 * A figure of a checkpoint that a process tells the driver for {@link StateFilesTab}. Those with a key are sums of what
 * {@link io.pyspark.statestore.metrics.LogMetrics} counts under it, so processes tell what has come since they told it
 * last. The others say what there is, or {@link #UNKNOWN}.
 */
enum Figure {
  GROUPS("groups", "groupCommits"),
  COMMITS("commits", "commits"),
  SEGMENTS("segments", "writtenSegments"),
  WRITTEN_BYTES("writtenBytes", "writtenBytes"),
  FAILED_GROUPS("failedGroups", "failedGroups"),
  INDEX_QUESTIONS("indexQuestions", "indexQuestions"),
  RELOCATED_BYTES("relocatedBytes", "relocatedBytes"),
  UNLINKED_FILES("unlinkedFiles", "unlinkedFiles"),
  FAILED_DELETES("failedDeletes", "failedDeletes"),
  LOOK_AHEAD_KEYS("lookAheadKeys", "lookAheadKeys"),
  LOOK_AHEAD_FETCHED_BLOCKS("lookAheadFetchedBlocks", "lookAheadFetchedBlocks"),
  HEAP_SPILL_WRITTEN_BYTES("heapSpillWrittenBytes", "heapSpillWrittenBytes"),
  HEAP_SPILL_READS("heapSpillReads", "heapSpillReads"),
  WRITE_NANOS("writeNanos", "flushNanos"),
  WAIT_NANOS("waitNanos", "commitWaitNanos"),
  FILES,
  PHYSICAL_BYTES,
  LIVE_FILES,
  LIVE_BYTES,
  /** Whether an index service in the driver answers executors: 1 or 0. */
  SERVED,
  PASS_ENDED_MS,
  PASS_TOOK_MS,
  /** Whether the last cleaning pass stopped before its end: 1 or 0. */
  PASS_STOPPED,
  /** The query's {@code maxSpaceAmplification}, in hundredths. */
  MAX_AMPLIFICATION,
  /** The query's {@code closedAfter}. */
  CLOSED_AFTER_MS,
  /** The halves of the id of the query's last run. */
  RUN_ID_FIRST,
  RUN_ID_LAST;

  static final long UNKNOWN = -1;
  static final int COUNT = values().length;

  private final String key;
  private final String metric;

  Figure() {
    this(null, null);
  }

  Figure(String key, String metric) {
    this.key = key;
    this.metric = metric;
  }

  boolean isSum() {
    return key != null;
  }

  /** Its name in {@link io.pyspark.statestore.metrics.LogMetrics#snapshot()}; null where it is no sum. */
  String key() {
    return key;
  }

  /** Its name among Spark's metrics, after {@code fileMerging.application.}; null where it is no sum. */
  String metric() {
    return metric;
  }

  long of(long[] figures) {
    return figures[ordinal()];
  }
}
