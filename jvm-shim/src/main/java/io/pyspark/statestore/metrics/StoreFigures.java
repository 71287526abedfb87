package io.pyspark.statestore.metrics;

import java.util.concurrent.TimeUnit;

/**
 * What a process has done for one store since somebody last asked: see {@link LogMetrics#takeOf}.
 *
 * @param createdFiles merged files that began with something of the store
 * @param segments that have become durable; moved ones are not among them
 * @param waitNanos how long its commits waited until they were durable
 * @param fetchedBytes of SSTs that were read of merged files when the store was loaded
 * @param cachedBytes of SSTs that the host had when the store was loaded
 * @param lookAhead what was fetched before it was read
 */
public record StoreFigures(
    long createdFiles,
    long segments,
    long writtenBytes,
    long waitNanos,
    long fetchedBytes,
    long cachedBytes,
    LookAhead lookAhead) {
  public static final StoreFigures NONE = new StoreFigures(0, 0, 0, 0, 0, 0, LookAhead.NONE);

  /**
   * What was fetched before it was read.
   *
   * @param windows of rows for which keys were asked for
   * @param keys that were asked for
   * @param present those of them of which nothing was missing
   * @param blocks that were fetched; for each of them a read would have waited
   */
  public record LookAhead(long windows, long keys, long present, long blocks) {
    public static final LookAhead NONE = new LookAhead(0, 0, 0, 0);

    public LookAhead plus(LookAhead other) {
      return new LookAhead(windows + other.windows, keys + other.keys, present + other.present, blocks + other.blocks);
    }
  }

  static StoreFigures written(long bytes) {
    return new StoreFigures(0, 1, bytes, 0, 0, 0, LookAhead.NONE);
  }

  static StoreFigures committed(boolean beganFile, long waitNanos) {
    return new StoreFigures(beganFile ? 1 : 0, 0, 0, waitNanos, 0, 0, LookAhead.NONE);
  }

  static StoreFigures fetched(long bytes) {
    return new StoreFigures(0, 0, 0, 0, bytes, 0, LookAhead.NONE);
  }

  static StoreFigures cached(long bytes) {
    return new StoreFigures(0, 0, 0, 0, 0, bytes, LookAhead.NONE);
  }

  /** Nothing but what was fetched before it was read. */
  public static StoreFigures lookedAhead(LookAhead done) {
    return new StoreFigures(0, 0, 0, 0, 0, 0, done);
  }

  public long waitMs() {
    return TimeUnit.NANOSECONDS.toMillis(waitNanos);
  }

  /** What {@link #waitMs} leaves out. */
  public StoreFigures belowMs() {
    return committed(false, waitNanos - TimeUnit.MILLISECONDS.toNanos(waitMs()));
  }

  public StoreFigures plus(StoreFigures other) {
    return new StoreFigures(
        createdFiles + other.createdFiles,
        segments + other.segments,
        writtenBytes + other.writtenBytes,
        waitNanos + other.waitNanos,
        fetchedBytes + other.fetchedBytes,
        cachedBytes + other.cachedBytes,
        lookAhead.plus(other.lookAhead));
  }
}
