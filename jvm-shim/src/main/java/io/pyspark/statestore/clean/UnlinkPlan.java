package io.pyspark.statestore.clean;

import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Tombstone;
import io.pyspark.statestore.index.TombstoneUse;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/**
 * Rule 6: which files may be unlinked now, and which of their tombstones have to be written again first.
 *
 * @param steps in the order in which to take them
 */
public record UnlinkPlan(List<Step> steps) {
  /**
   * One file to unlink.
   *
   * @param file in which nothing lives
   * @param carryOver its tombstones that must be durable elsewhere before, with their generation raised
   */
  public record Step(MergedFile file, List<Tombstone> carryOver) {}

  /** So many files that hold little but needed tombstones are joined; fewer would be written again pass after pass. */
  private static final int WORTH_JOINING = 4;

  /** A file never stays for the sake of tombstones that take less than this part of it. */
  private static final long CHEAP = 16;

  /**
   * Plans one pass.
   *
   * @param wanted whether this process wants to unlink a file, among those that may go by rule 6
   * @param patient whether a file may stay a little longer because its tombstones will probably be unneeded soon
   * @param atMost files to unlink
   */
  public static UnlinkPlan of(
      Index index, Rules rules, Predicate<MergedFile> wanted, Predicate<MergedFile> patient, int atMost) {
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
      if (!mayGo(file, index, rules) || !wanted.test(file)) {
        continue;
      }
      TombstoneUse use = TombstoneUse.of(index, file);
      List<Tombstone> carryOver = new ArrayList<>(use.holding());
      carryOver.addAll(use.idle());
      long cost = carryOver.stream().mapToLong(Tombstone::bytes).sum();
      // What the tombstones hold down goes in this very pass, so the next one will need fewer of them, or none.
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

  /**
   * Whether a file without live segments may go: it is closed, its whole index was read, no bytes of it may be a
   * damaged group (rule 8), and it repeats no file that still exists.
   */
  private static boolean mayGo(MergedFile file, Index index, Rules rules) {
    return rules.isClosed(file)
        && file.wholeIndexRead()
        && file.isAccounted()
        && file.covered().stream().noneMatch(name -> index.file(name) != null);
  }
}
