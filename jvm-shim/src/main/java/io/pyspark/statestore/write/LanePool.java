package io.pyspark.statestore.write;

import io.pyspark.statestore.index.LogicalPaths;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntSupplier;
import java.util.function.Supplier;

/**
 * The lanes of one checkpoint in this process. Small commits (changelogs, deltas) have a lane of their own, so that a
 * snapshot of 64 MiB never makes a commit of 2 KiB wait, and so that what dies together lies together.
 */
final class LanePool {
  /** Below this, sharing a busy lane's next group is cheaper than another file. */
  private static final long WORTH_A_LANE = 1 << 20;

  private final Supplier<Lane> newLane;
  private final IntSupplier maxOpenFiles;
  private final Lane commits;
  private final List<Lane> snapshots = new ArrayList<>();

  /** What survives long enough to be moved is kept apart from what is new. */
  private final Lane relocations;

  /** Made when it is first needed; then there is one less for snapshots. */
  private volatile Lane early;

  LanePool(Supplier<Lane> newLane, IntSupplier maxOpenFiles) {
    this.newLane = newLane;
    this.maxOpenFiles = maxOpenFiles;
    this.commits = newLane.get();
    this.relocations = newLane.get();
  }

  Lane forTombstones() {
    return commits;
  }

  Lane forRelocations() {
    return maxOpenFiles.getAsInt() > 2 ? relocations : commits;
  }

  /**
   * A lane for which no commit of Spark's waits, for SSTs that no snapshot names yet; null where so few files may be
   * open that there is none.
   */
  synchronized Lane forEarlyUploads() {
    if (maxOpenFiles.getAsInt() <= 3) {
      return maxOpenFiles.getAsInt() == 3 ? relocations : null;
    }
    if (early == null) {
      early = newLane.get();
    }
    return early;
  }

  /** The lane for a commit of logical files. */
  synchronized Lane choose(Commit commit) {
    boolean snapshot = commit.items().stream().anyMatch(item -> LogicalPaths.isOfSnapshot(item.path()));
    int lanes = maxOpenFiles.getAsInt() - (early == null ? 2 : 3);
    if (!snapshot || lanes < 0) {
      return commits;
    }
    if (snapshots.isEmpty()) {
      snapshots.add(newLane.get());
    }
    Lane best = snapshots.get(0);
    if (!best.isBusy() || commit.length() < WORTH_A_LANE) {
      return best;
    }
    for (Lane lane : snapshots) {
      if (!lane.isBusy()) {
        return lane;
      }
      if (lane.waiting() < best.waiting()) {
        best = lane;
      }
    }
    if (snapshots.size() < Math.max(1, lanes)) {
      best = newLane.get();
      snapshots.add(best);
    }
    return best;
  }

  synchronized List<Lane> all() {
    List<Lane> lanes = new ArrayList<>(snapshots);
    lanes.add(commits);
    lanes.add(relocations);
    if (early != null) {
      lanes.add(early);
    }
    return lanes;
  }
}
