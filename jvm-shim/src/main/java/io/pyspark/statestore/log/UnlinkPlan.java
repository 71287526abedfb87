package io.pyspark.statestore.log;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/**
 * Which files may be unlinked now, and what has to be written again first (rule 6).
 *
 * @param steps in the order in which to take them
 */
record UnlinkPlan(List<Step> steps) {
  /**
   * One file to unlink.
   *
   * @param file in which nothing lives
   * @param carryOver tombstones of it that must be durable elsewhere before
   */
  record Step(MergedFile file, List<Tombstone> carryOver) {}

  /** So many files that hold little but needed tombstones are joined; fewer would be written again round after round. */
  private static final int WORTH_JOINING = 4;
  /** Nobody waits for tombstones that take less than such a part of a file. */
  private static final long CHEAP = 16;

  /**
   * Plans one round.
   *
   * @param index what is known
   * @param mayGo whether a file without live segments is closed, read whole and this process's to unlink
   * @param patient whether a file may stay a little longer, where its tombstones will probably not be needed soon
   * @param atMost files to unlink
   */
  static UnlinkPlan of(Index index, Predicate<MergedFile> mayGo, Predicate<MergedFile> patient, int atMost) {
    List<Step> steps = new ArrayList<>();
    List<Step> mostlyNeeded = new ArrayList<>();
    Set<MergedFile> going = new HashSet<>();
    List<MergedFile> dead = new ArrayList<>(index.filesWithoutLiveSegments());
    dead.sort(Comparator.comparing(MergedFile::name));
    dead.remove(index.newest());
    for (MergedFile file : dead) {
      if (steps.size() >= atMost) {
        break;
      }
      if (!mayGo.test(file)) {
        continue;
      }
      Index.TombstoneUse use = index.useOfTombstones(file);
      List<Tombstone> carryOver = new ArrayList<>(use.holding());
      carryOver.addAll(use.idle());
      long cost = carryOver.stream().mapToLong(Tombstone::bytes).sum();
      // What the tombstones hold down goes in this very round, so the next one will need fewer of them, or none.
      if (cost * CHEAP > file.size() && going.containsAll(use.victims()) && patient.test(file)) {
        continue;
      }
      Step step = new Step(file, carryOver.stream().map(Tombstone::carriedOver).toList());
      if (2 * cost > file.size()) {
        mostlyNeeded.add(step);
        continue;
      }
      going.add(file);
      steps.add(step);
    }
    if (mostlyNeeded.size() >= WORTH_JOINING) {
      steps.addAll(mostlyNeeded);
    }
    return new UnlinkPlan(steps);
  }
}
