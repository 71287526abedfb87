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
 */
public record StoreFigures(
    long createdFiles, long segments, long writtenBytes, long waitNanos, long fetchedBytes, long cachedBytes) {
  public static final StoreFigures NONE = new StoreFigures(0, 0, 0, 0, 0, 0);

  static StoreFigures written(long bytes) {
    return new StoreFigures(0, 1, bytes, 0, 0, 0);
  }

  static StoreFigures committed(boolean beganFile, long waitNanos) {
    return new StoreFigures(beganFile ? 1 : 0, 0, 0, waitNanos, 0, 0);
  }

  static StoreFigures fetched(long bytes) {
    return new StoreFigures(0, 0, 0, 0, bytes, 0);
  }

  static StoreFigures cached(long bytes) {
    return new StoreFigures(0, 0, 0, 0, 0, bytes);
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
        cachedBytes + other.cachedBytes);
  }
}
