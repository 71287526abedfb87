package io.pyspark.statestore.tables;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexSource;
import io.pyspark.statestore.read.SnapshotZip;
import io.pyspark.statestore.write.Payload;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;

/**
 * Refuses snapshots that come too late. Spark uploads them from maintenance threads, perhaps long after they were
 * taken. Meanwhile another executor may have taken the partition over, and deleted files that the snapshot shares with
 * older ones. A zip that names a missing file would be noticed only when it is needed (SPARK-55892).
 *
 * <p>That another process has taken a partition over shows in a snapshot of a newer version. One that was there already
 * when the run's first task here asked for the partition shows nothing: somebody has taken the query's logs back to an
 * earlier batch, and the versions after it are written once more. A snapshot that was refused then would leave the one
 * of what was given up in its place, and the next load would take that.
 */
final class SnapshotGuard {
  /** A partition that this process wrote to so recently is surely still its own. */
  private static final long SURELY_OWN_MS = 5_000;

  /** How old the view may be in which a shared file is looked up. */
  private static final long VIEW_NANOS = 1_000_000_000L;

  /** In bytes. Spark's zips hold a manifest and a list of names; a larger one is not Spark's. */
  private static final long MAX_ZIP = 32 << 20;

  /**
   * What a run has met in a partition.
   *
   * @param newest the highest stamp of its snapshots
   */
  private record Met(FreshnessKey.QueryRun run, long newest) {}

  private final Storage storage;
  private final Index index;
  private final Rules rules;
  private final long writerId;
  private final IndexSource source;
  private final BooleanSupplier bornMerged;

  /** By partition. */
  private final Map<String, Met> met = new ConcurrentHashMap<>();

  private volatile long refreshedNanos = System.nanoTime() - VIEW_NANOS;

  /**
   * @param bornMerged whether the checkpoint was begun with merging, so that no plain state file can exist in it
   */
  SnapshotGuard(
      Storage storage, Index index, Rules rules, long writerId, IndexSource source, BooleanSupplier bornMerged) {
    this.storage = storage;
    this.index = index;
    this.rules = rules;
    this.writerId = writerId;
    this.source = source;
    this.bornMerged = bornMerged;
  }

  /**
   * A task of a run asks for something of a partition, and all that was committed before its stage is known.
   *
   * @param run null where it is not known
   */
  void meets(String path, FreshnessKey.QueryRun run) {
    String partition = LogicalPaths.partition(path);
    Met before = met.get(partition);
    if (before == null || !Objects.equals(before.run, run)) {
      long newest =
          index.listRecursively(partition).stream()
              .filter(each -> LogicalPaths.isZip(each.path()))
              .mapToLong(each -> each.entry().stamp())
              .max()
              .orElse(Long.MIN_VALUE);
      met.put(partition, new Met(run, newest));
    }
  }

  /** The immutable files that a zip names; none where it cannot be read as a snapshot's, which Spark has to report. */
  static Set<String> filesNamed(String path, Payload zip) throws IOException {
    if (zip.length() > MAX_ZIP) {
      return Set.of();
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream((int) zip.length());
    zip.writeTo(bytes);
    return Set.copyOf(SnapshotZip.filesNamed(path, new ByteArrayInputStream(bytes.toByteArray())));
  }

  /**
   * Checks a zip that is about to be committed.
   *
   * @param named the files that it needs
   * @param comes whether a file is written with it
   * @param isLate whether its version was committed before
   * @param unwrittenMs how long this process has written nothing else to the partition
   * @throws StateStoreFilesException PSS_STALE_SNAPSHOT; nothing of the snapshot is visible then
   */
  void check(String path, Set<String> named, Predicate<String> comes, boolean isLate, long unwrittenMs)
      throws IOException {
    if (isLate) {
      // Another process may have deleted what it shares with older snapshots, and an old view does not show that.
      long surelyOwnMs = Math.min(SURELY_OWN_MS, rules.options().idleSealMs() / 2);
      if (unwrittenMs > surelyOwnMs && !named.stream().allMatch(comes)) {
        refreshIfOld(path);
      }
      String newer = newerOfAnother(path);
      if (newer != null) {
        throw stale(path, "another process has taken the partition over and written state/" + newer);
      }
    }
    if (notPlain(missing(named, comes)).isEmpty()) {
      return;
    }
    source.refreshFromFiles(path);
    List<String> missing = notPlain(missing(named, comes));
    if (!missing.isEmpty()) {
      throw stale(path, "it needs state/" + missing.get(0) + ", which was deleted since the snapshot was taken");
    }
  }

  /**
   * Those that are no plain files either, as the older SSTs of a converted checkpoint are. Mostly one listing finds
   * them all. A listing in pages may leave one out, so each that it does not show is asked for.
   */
  private List<String> notPlain(List<String> paths) throws IOException {
    if (paths.isEmpty() || bornMerged.getAsBoolean()) {
      return paths;
    }
    Map<String, Set<String>> found = new HashMap<>();
    List<String> missing = new ArrayList<>();
    for (String path : paths) {
      int slash = path.lastIndexOf('/');
      String directory = path.substring(0, slash);
      if (!found.containsKey(directory)) {
        found.put(directory, storage.plainFiles(directory));
      }
      if (!found.get(directory).contains(path.substring(slash + 1)) && !storage.existsPlain(path)) {
        missing.add(path);
      }
    }
    return missing;
  }

  /** Refreshes, unless an upload did a moment ago: those of many partitions that come together share a refresh. */
  private void refreshIfOld(String path) throws IOException {
    long now = System.nanoTime();
    if (now - refreshedNanos >= VIEW_NANOS) {
      source.refresh(path);
      refreshedNanos = now;
    }
  }

  private List<String> missing(Set<String> named, Predicate<String> comes) {
    return named.stream().filter(p -> index.find(p) == null && !comes.test(p)).toList();
  }

  private String newerOfAnother(String path) {
    long version = LogicalPaths.versionOfZip(path);
    Met before = met.get(LogicalPaths.partition(path));
    long metStamp = before == null ? Long.MIN_VALUE : before.newest;
    for (Segment other : index.list(LogicalPaths.directory(path))) {
      boolean isOfAnother = other.entry().writer() != writerId && other.entry().stamp() > metStamp;
      if (isOfAnother && LogicalPaths.versionOfZip(other.path()) > version) {
        return other.path();
      }
    }
    return null;
  }

  private StateStoreFilesException stale(String path, String why) {
    return new StateStoreFilesException(
        Id.PSS_STALE_SNAPSHOT,
        "The snapshot state/"
            + path
            + " of checkpoint "
            + storage.checkpoint()
            + " comes too late and was not written: "
            + why
            + ". Nothing is lost: the version can be restored from an"
            + " older snapshot and changelogs, and Spark writes another snapshot later.");
  }
}
