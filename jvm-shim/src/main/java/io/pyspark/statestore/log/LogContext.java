package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;

/** What a lane needs of the log that it belongs to. */
interface LogContext {
  /** The checkpoint's location, for messages. */
  String checkpoint();

  Options options();

  Storage storage();

  Index index();

  HybridClock clock();

  CommitWindow commitWindow();

  LogMetrics metrics();

  /** How many partitions may commit at the same time in this process. */
  int expectedPartitions();

  /** This process's id in the checkpoint. */
  long writerId();

  /** The JSON object for a new file's header. */
  String headerMeta();

  String nextFileName(long nowMs);

  /** Number of the newest refresh that has begun. */
  long refreshNumber();

  /** Wall time in Unix milliseconds, for names and stamps: it may jump. */
  long nowMs();

  /** What time it is for everything that takes time. */
  Clocks.Moment now();

  /** Rule 7: whether nobody appends to a file any more, as of now. */
  default boolean isClosed(MergedFile file) {
    return file.isClosed(now(), options().closedAfterMs());
  }

  /** Deletions that wait for a group to ride in. */
  PendingTombstones tombstones();

  /** Whether a round of cleaning comes in a moment, and makes deletions durable together with what they free. */
  boolean cleansSoon();

  /** Bytes after which an open file is sealed. */
  long fileSize();
}
