package io.pyspark.statestore.index;

import io.pyspark.statestore.format.Entry;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.BiConsumer;

/**
 * All that is known of the paths of one directory, which is a store, or the SSTs of one: segments and tombstones in
 * existing files, dead ones included, because a tombstone must outlive those that it kills (rule 6). {@link Segment}s
 * and {@link Tombstone}s are made of the records when they are asked for. The index's lock guards it.
 */
final class StoreEntries {
  /** Noted of a tombstone that is proven unneeded; of others, the refresh since which they hold nothing down. */
  static final int UNNEEDED = -1;

  private final String directory;
  private final FileNumbers numbers;
  private final EntryTable table = new EntryTable();

  /** How many of its paths live. */
  int liveCount;

  StoreEntries(String directory, FileNumbers numbers) {
    this.directory = directory;
    this.numbers = numbers;
  }

  String directory() {
    return directory;
  }

  boolean isEmpty() {
    return table.count() == 0;
  }

  boolean contains(String path) {
    return first(known(path)) != EntryTable.NONE;
  }

  /**
   * A tombstone of a path.
   *
   * @param file that holds it; null for one that is only remembered
   * @param slot where it is, until anything is added or removed
   */
  record Copy(Tombstone tombstone, MergedFile file, int slot) {}

  /** All that is known of a path at one moment, with its packed name. */
  record Known(byte[] name, int hash, List<Segment> segments, List<Copy> tombstones) {
    /** The segment that is read: the newest write, if no tombstone kills it (rules 3 to 5); or null. */
    Segment live() {
      Segment best = null;
      for (Segment segment : segments) {
        if (best == null || segment.beats(best)) {
          best = segment;
        }
      }
      for (Copy copy : tombstones) {
        if (best != null && copy.tombstone.kills(best)) {
          return null;
        }
      }
      return best;
    }

    /** The tombstone that kills most, or null. */
    Tombstone highest() {
      Tombstone highest = null;
      for (Copy copy : tombstones) {
        if (highest == null || !highest.covers(copy.tombstone)) {
          highest = copy.tombstone;
        }
      }
      return highest;
    }

    private Known without(MergedFile file) {
      return new Known(
          name,
          hash,
          segments.stream().filter(segment -> segment.file() != file).toList(),
          tombstones.stream().filter(copy -> copy.file != file).toList());
    }

    private Known with(Segment segment) {
      return new Known(name, hash, plus(segments, segment), tombstones);
    }

    private Known with(Tombstone tombstone, MergedFile file) {
      return new Known(name, hash, segments, plus(tombstones, new Copy(tombstone, file, EntryTable.NONE)));
    }

    private static <T> List<T> plus(List<T> some, T more) {
      if (some.isEmpty()) {
        return List.of(more);
      }
      List<T> all = new ArrayList<>(some);
      all.add(more);
      return all;
    }

    private boolean has(Segment segment) {
      return segments.stream().anyMatch(segment::isSamePlace);
    }

    private boolean has(Tombstone tombstone, MergedFile file) {
      return tombstones.stream().anyMatch(copy -> copy.file == file && copy.tombstone.equals(tombstone));
    }

    private boolean isInAnyFile() {
      return !segments.isEmpty() || tombstones.stream().anyMatch(copy -> copy.file != null);
    }
  }

  Known known(String path) {
    byte[] name = packed(path);
    int hash = PackedName.hash(name, 0, name.length);
    List<Segment> segments = List.of();
    List<Copy> tombstones = List.of();
    for (int slot = table.first(name, hash); slot != EntryTable.NONE; slot = table.next(name, slot)) {
      if (table.isPut(slot)) {
        segments = segments.isEmpty() ? new ArrayList<>(2) : segments;
        segments.add(segment(slot, path));
      } else {
        tombstones = tombstones.isEmpty() ? new ArrayList<>(2) : tombstones;
        tombstones.add(new Copy(Tombstone.of(table.entry(slot, path)), file(slot), slot));
      }
    }
    return new Known(name, hash, segments, tombstones);
  }

  /** What was noted of a tombstone; 0 where nothing was. */
  int note(Copy copy) {
    return table.note(copy.slot);
  }

  /** Notes something of a tombstone. */
  void note(Copy copy, int value) {
    table.note(copy.slot, value);
  }

  /** The live segments. */
  List<Segment> list() {
    List<Segment> found = new ArrayList<>(liveCount);
    for (int slot = 0; slot < table.slots() && found.size() < liveCount; slot++) {
      if (!table.isEmpty(slot) && table.isPut(slot)) {
        Segment segment = segment(slot, path(slot));
        if (segment.equals(known(segment.path()).live())) {
          found.add(segment);
        }
      }
    }
    return found;
  }

  /** All paths. */
  List<String> paths() {
    Set<String> found = new LinkedHashSet<>();
    for (int slot = 0; slot < table.slots(); slot++) {
      if (!table.isEmpty(slot)) {
        found.add(path(slot));
      }
    }
    return new ArrayList<>(found);
  }

  /** The paths whose names have a hash and of which a file has entries: seldom more than one. */
  List<String> paths(int hash, MergedFile file) {
    List<String> found = new ArrayList<>(1);
    for (int slot = table.firstNear(hash); slot != EntryTable.NONE; slot = table.nextNear(slot)) {
      if (table.file(slot) == file.number && table.hash(slot) == hash) {
        String path = path(slot);
        if (!found.contains(path)) {
          found.add(path);
        }
      }
    }
    return found;
  }

  /** Whether a file has a segment, or else a tombstone, of a path whose name has a hash. */
  boolean has(int hash, MergedFile file, boolean isPut) {
    for (int slot = table.firstNear(hash); slot != EntryTable.NONE; slot = table.nextNear(slot)) {
      if (table.file(slot) == file.number && table.isPut(slot) == isPut && table.hash(slot) == hash) {
        return true;
      }
    }
    return false;
  }

  /** Hands out all entries that files hold. */
  void forEach(BiConsumer<MergedFile, Entry> to) {
    for (int slot = 0; slot < table.slots(); slot++) {
      if (!table.isEmpty(slot) && table.file(slot) != FileNumbers.NO_FILE) {
        to.accept(file(slot), table.entry(slot, path(slot)));
      }
    }
  }

  // ---- changes of one path; each returns what is known then

  /** Adds an entry of a file, unless it is known: then the same is returned. */
  Known add(Entry entry, MergedFile file, Known known) {
    Segment segment = entry.isPut() ? new Segment(entry, file) : null;
    Tombstone tombstone = entry.isPut() ? null : Tombstone.of(entry);
    if (entry.isPut() ? known.has(segment) : known.has(tombstone, file)) {
      return known;
    }
    table.add(entry, known.name, known.hash, file.number);
    return entry.isPut() ? known.with(segment) : known.with(tombstone, file);
  }

  /**
   * Keeps a tombstone that no file holds: one that is not written yet, or whose file is gone. The highest that was ever
   * seen is kept as long as a file has anything of the path, so an entry that is read late stays dead.
   */
  Known remember(Tombstone highest, Known known) {
    Known rest = removeOf(null, known);
    table.add(highest.toEntry(), known.name, known.hash, FileNumbers.NO_FILE);
    return rest.with(highest, null);
  }

  /** Removes a file's entries of a path. */
  Known remove(MergedFile file, Known known) {
    Known rest = removeOf(file, known);
    if (!rest.isInAnyFile()) {
      return removeOf(null, rest);
    }
    Tombstone highest = known.highest();
    boolean isKept = highest == null || rest.highest() != null && rest.highest().covers(highest);
    return isKept ? rest : remember(highest, rest);
  }

  /** Removes all that is known of a path. */
  Known removeAll(Known known) {
    for (int slot = first(known); slot != EntryTable.NONE; slot = first(known)) {
      table.remove(slot);
    }
    return new Known(known.name, known.hash, List.of(), List.of());
  }

  private Known removeOf(MergedFile file, Known known) {
    int number = file == null ? FileNumbers.NO_FILE : file.number;
    int slot = first(known);
    while (slot != EntryTable.NONE) {
      if (table.file(slot) == number) {
        table.remove(slot);
        slot = first(known);
      } else {
        slot = table.next(known.name, slot);
      }
    }
    return known.without(file);
  }

  private int first(Known known) {
    return table.first(known.name, known.hash);
  }

  private Segment segment(int slot, String path) {
    return new Segment(table.entry(slot, path), file(slot));
  }

  private MergedFile file(int slot) {
    return numbers.file(table.file(slot));
  }

  private String path(int slot) {
    return directory.isEmpty() ? table.name(slot) : directory + "/" + table.name(slot);
  }

  private byte[] packed(String path) {
    return PackedName.pack(directory.isEmpty() ? path : path.substring(directory.length() + 1));
  }
}
