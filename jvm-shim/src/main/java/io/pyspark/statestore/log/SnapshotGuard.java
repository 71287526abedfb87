package io.pyspark.statestore.log;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/**
 * Refuses snapshots that come too late. Spark uploads them from maintenance threads, perhaps long after they were
 * taken; meanwhile another executor may have taken the partition over, and deleted files that the snapshot shares with
 * older ones. A zip that names a file which does not exist would be found only when it is needed (SPARK-55892).
 */
final class SnapshotGuard {
  /** A partition that this process has written to so lately is still its own. */
  private static final long SURELY_OWN_MS = 5_000;
  /** How old the view may be in which a shared file lives. */
  private static final long VIEW_NANOS = 1_000_000_000L;
  /** Zips hold a manifest and a list of names; what is larger is none of Spark's. */
  private static final long MAX_ZIP = 32 << 20;

  private final LogContext context;
  private final Refresher refresher;
  private final Predicate<String> isStaged;
  private volatile long refreshedNanos = System.nanoTime() - VIEW_NANOS;

  SnapshotGuard(LogContext context, Refresher refresher, Predicate<String> isStaged) {
    this.context = context;
    this.refresher = refresher;
    this.isStaged = isStaged;
  }

  /**
   * Checks a zip that is about to be committed.
   *
   * @param unwrittenMs for how long this process has written nothing else to the partition
   * @return which staged files it needs
   * @throws StateStoreFilesException PSS_STALE_SNAPSHOT; nothing is visible of the snapshot, then
   */
  Predicate<String> check(String path, Payload payload, long unwrittenMs) throws IOException {
    if (payload.length() > MAX_ZIP) {
      return staged -> true;
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream((int) payload.length());
    payload.writeTo(bytes);
    Set<String> named = Set.copyOf(SnapshotZip.filesNamed(path, new ByteArrayInputStream(bytes.toByteArray())));
    // A zip that cannot be read as a snapshot's is not for this class to judge: it takes whatever is there, as ever.
    Predicate<String> needed = named.isEmpty() ? staged -> true : named::contains;
    if (MaintenanceThreads.isCurrent()) {
      // What it shares with older snapshots another process may have deleted, and an old view does not know it.
      long surelyOwnMs = Math.min(SURELY_OWN_MS, context.options().idleSealMs() / 2);
      if (unwrittenMs > surelyOwnMs && !named.stream().allMatch(isStaged)) {
        refreshIfOld();
      }
      String newer = newerOfAnother(path);
      if (newer != null) {
        throw stale(path, "another process has taken the partition over and written state/" + newer);
      }
    }
    if (missing(named).isEmpty() || refresher.mayHavePlainFiles()) {
      return needed;
    }
    refresher.refresh();
    List<String> missing = missing(named);
    if (!missing.isEmpty()) {
      throw stale(path, "it needs state/" + missing.get(0) + ", which was deleted since the snapshot was taken");
    }
    return needed;
  }

  /** The snapshots of many partitions that are uploaded at about the same time share a refresh. */
  private void refreshIfOld() throws IOException {
    long now = System.nanoTime();
    if (now - refreshedNanos >= VIEW_NANOS) {
      refresher.refresh();
      refreshedNanos = now;
    }
  }

  private List<String> missing(Set<String> named) {
    return named.stream().filter(p -> context.index().find(p) == null && !isStaged.test(p)).toList();
  }

  private String newerOfAnother(String path) {
    long version = SnapshotZip.version(path);
    for (Segment other : context.index().list(SnapshotZip.store(path))) {
      if (SnapshotZip.version(other.path()) > version && other.entry().writer() != context.writerId()) {
        return other.path();
      }
    }
    return null;
  }

  private StateStoreFilesException stale(String path, String why) {
    return new StateStoreFilesException(
        Id.PSS_STALE_SNAPSHOT, "The snapshot state/" + path + " of checkpoint " + context.checkpoint()
            + " comes too late and was not written: " + why + ". Nothing is lost: the version can be restored from an older"
            + " snapshot and changelogs, and Spark writes another snapshot later.");
  }
}
