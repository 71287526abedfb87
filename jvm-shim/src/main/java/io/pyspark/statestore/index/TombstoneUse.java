package io.pyspark.statestore.index;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.LongPredicate;
import java.util.function.Predicate;

/**
 * The tombstones of a file that must be written again before it goes (rule 6). Those that a greater copy in another
 * file repeats are left out, and those that are proven unneeded.
 *
 * @param holding those that hold down an entry in another file
 * @param victims the files of these entries
 * @param idle those that hold down nothing that is known
 */
public record TombstoneUse(List<Tombstone> holding, Set<MergedFile> victims, List<Tombstone> idle) {
  /**
   * What a file's tombstones are needed for. Each is judged by what is known of its path at one moment, and that does
   * not depend on the others.
   */
  public static TombstoneUse of(Index index, MergedFile file) {
    TombstoneUse use = new TombstoneUse(new ArrayList<>(), new HashSet<>(), new ArrayList<>());
    index.walkTombstones(
        file,
        () -> index.isKnown(file),
        (store, path) -> {
          StoreEntries.Known known = store.known(path);
          for (StoreEntries.Copy copy : known.tombstones()) {
            if (copy.file() != file || known.tombstones().stream().anyMatch(other -> repeats(other, copy, index))) {
              continue;
            }
            if (addVictims(known, copy, use.victims)) {
              use.holding.add(copy.tombstone());
            } else if (store.note(copy) != StoreEntries.UNNEEDED) {
              use.idle.add(copy.tombstone());
            }
          }
        });
    return use;
  }

  /** Whether a copy is a greater one in another file. A file that is being removed repeats nothing: it is gone. */
  private static boolean repeats(StoreEntries.Copy other, StoreEntries.Copy copy, Index index) {
    return other.file() != null
        && other.file() != copy.file()
        && index.isKnown(other.file())
        && Tombstone.compareCopies(other.tombstone(), other.file(), copy.tombstone(), copy.file()) > 0;
  }

  private static boolean addVictims(StoreEntries.Known known, StoreEntries.Copy copy, Set<MergedFile> victims) {
    boolean any = false;
    for (Segment segment : known.segments()) {
      if (segment.file() != copy.file() && copy.tombstone().kills(segment)) {
        victims.add(segment.file());
        any = true;
      }
    }
    return any;
  }

  /**
   * Finds, after a complete refresh, the tombstones in closed files that are unneeded for ever: no file held what they
   * kill when the refresh began, and no relocation that may have begun before it is still under way.
   *
   * <p>Each tombstone is judged by what is known of its path at one moment after the refresh. A file that was there at
   * the refresh and is gone by then proves as much as one that was not: only a relocation can bring back what it held,
   * and one that began later has found the tombstone.
   */
  public static void prove(Index index, long refresh, Predicate<MergedFile> closed, LongPredicate noRelocationSince) {
    for (MergedFile file : index.files()) {
      // What was read by this very refresh may be younger than other files' indexes that it read.
      BooleanSupplier mayBeProven =
          () ->
              index.isKnown(file)
                  && file.unneededCount < file.tombstoneCount
                  && file.changedIn() < refresh
                  && closed.test(file);
      index.walkTombstones(
          file,
          mayBeProven,
          (store, path) -> {
            StoreEntries.Known known = store.known(path);
            for (StoreEntries.Copy copy : known.tombstones()) {
              if (copy.file() == file && store.note(copy) != StoreEntries.UNNEEDED) {
                int idleSince = idleSince(known, copy, store.note(copy), refresh, noRelocationSince);
                store.note(copy, idleSince);
                file.unneededCount += idleSince == StoreEntries.UNNEEDED ? 1 : 0;
              }
            }
          });
    }
  }

  /** The first complete refresh that found nothing for a tombstone to hold down; 0 where there is something. */
  private static int idleSince(
      StoreEntries.Known known, StoreEntries.Copy copy, int before, long refresh, LongPredicate noRelocationSince) {
    if (addVictims(known, copy, new HashSet<>())) {
      return 0;
    }
    int since = before == 0 ? Math.toIntExact(refresh) : before;
    return noRelocationSince.test(since) ? StoreEntries.UNNEEDED : since;
  }
}
