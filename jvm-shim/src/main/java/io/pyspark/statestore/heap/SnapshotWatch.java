package io.pyspark.statestore.heap;

import io.pyspark.statestore.write.UploadWatch;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Tells whether the snapshot that maintenance is writing of one store is still needed. Newer versions alone do not make
 * it obsolete: they are restored from it, with the deltas that follow.
 */
public final class SnapshotWatch implements UploadWatch {
  private static final Pattern SNAPSHOT = Pattern.compile("(?:.*/)?(\\d+)\\.snapshot(?:\\.crc)?");
  private static final long UNKNOWN = -1;

  /** The time between two questions: Spark's table of stores has one lock for all tasks of a process. */
  private static final long ASK_NANOS = 100_000_000L;

  private final BooleanSupplier isLoaded;
  private final boolean wasLoaded;
  private volatile long version = UNKNOWN;
  private volatile String why;
  private volatile long askedNanos = System.nanoTime();

  /**
   * @param isLoaded whether this process still has the store; it may wait for Spark's locks, and is not asked again if
   *     the process never had the store
   */
  public SnapshotWatch(BooleanSupplier isLoaded) {
    this.isLoaded = isLoaded;
    this.wasLoaded = isLoaded.getAsBoolean();
  }

  @Override
  public void began(String path) {
    Matcher matcher = SNAPSHOT.matcher(path);
    if (matcher.matches()) {
      version = Long.parseLong(matcher.group(1));
    }
  }

  /**
   * A task commits a version. A snapshot of an earlier write of that version, or of a later version, contradicts it.
   */
  public void committing(long committed) {
    if (version != UNKNOWN && committed <= version) {
      why = "version " + committed + " was written anew";
    }
  }

  /** A task has written a snapshot with its commit. */
  public void snapshotWritten(long committed) {
    if (version != UNKNOWN && committed > version) {
      why = "there is a snapshot of version " + committed + " by now";
    }
  }

  public void storeClosed() {
    why = "its store was closed";
  }

  @Override
  public String whyObsolete() {
    return why;
  }

  @Override
  public void ask() {
    if (why == null && wasLoaded && !isLoaded.getAsBoolean()) {
      why = "its partition is another executor's, or its query is over";
    }
  }

  @Override
  public void askNowAndThen() {
    long now = System.nanoTime();
    if (now - askedNanos > ASK_NANOS) {
      askedNanos = now;
      ask();
    }
  }
}
