package io.pyspark.statestore.index;

import io.pyspark.statestore.format.Entry;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

/**
 * The union of the entries of all merged files, read in any order: for each path the newest write that no tombstone
 * kills, for each merged file how many live segments it holds.
 *
 * <p>There is no object for an entry. Each directory has a table of bytes ({@link StoreEntries}, {@link EntryTable}),
 * and each file two lists of where its entries are ({@link FileEntries}). {@link Segment}s and {@link Tombstone}s are
 * made when they are asked for. Of a million, a segment takes 72 to 81 bytes of heap with its path (the most if all are
 * SSTs of 10,000 partitions), a tombstone of another path 63 to 76.
 *
 * <p>The one lock is held to look things up in memory, and never for a walk over all entries of a checkpoint: that goes
 * in steps. A path changes in one step, with all counts, so at any moment it is exact what lives at a path or in a
 * directory, and the files' counts agree with it. Between two steps anything may be added or removed. So a walk
 * concludes something of a path only from what it finds there in one step, and only what stays true however much is
 * added: what is dead stays dead (rules 3 to 5).
 */
public final class Index implements MergedFile.Keeper {
  private final Map<String, MergedFile> files = new LinkedHashMap<>();

  /** Of each of these files, where its entries are. */
  private final Map<MergedFile, Held> held = new IdentityHashMap<>();

  private final Directories directories = new Directories();
  private int liveCount;
  private long liveBytes;
  private long physicalBytes;
  private long garbage;

  /** Where a file's entries are. */
  record Held(FileEntries segments, FileEntries tombstones) {
    private static final Held NOTHING = new Held(new FileEntries(), new FileEntries());

    FileEntries of(boolean isPut) {
      return isPut ? segments : tombstones;
    }
  }

  synchronized Held held(MergedFile file) {
    return held.getOrDefault(file, Held.NOTHING);
  }

  // ---- files

  /** Adds a file without entries, unless one of this name is known; returns the known one. */
  public synchronized MergedFile addIfAbsent(MergedFile file) {
    MergedFile known = files.putIfAbsent(file.name(), file);
    if (known != null) {
      return known;
    }
    file.number = directories.numbers().give(file);
    held.put(file, new Held(new FileEntries(), new FileEntries()));
    file.index = this;
    recount(file);
    return file;
  }

  public synchronized MergedFile file(String name) {
    return files.get(name);
  }

  /** The files that exist, as far as is known. */
  public synchronized List<MergedFile> files() {
    return new ArrayList<>(files.values());
  }

  /** Whether a file exists, as far as is known. Call it with the index's lock. */
  boolean isKnown(MergedFile file) {
    return files.get(file.name()) == file;
  }

  /**
   * The file with the highest stamp, or null where there is none. It is kept however dead it is (rule 6): later
   * processes take the highest stamp from the files, and their stamps must be above it.
   */
  public synchronized MergedFile newest() {
    return files.values().stream()
        .max(Comparator.comparingLong(MergedFile::lastStamp).thenComparing(MergedFile::name))
        .orElse(null);
  }

  /** Names of the files that hold segments with second paths, where any of the reference file that says so live. */
  public synchronized Set<String> filesWithSecondPaths() {
    return files.values().stream()
        .filter(file -> file.liveCount > 0)
        .flatMap(file -> file.ownReferences().stream())
        .collect(Collectors.toSet());
  }

  /** The files in which nothing lives. */
  public synchronized List<MergedFile> filesWithoutLiveSegments() {
    return files.values().stream().filter(f -> f.liveCount == 0).toList();
  }

  /**
   * Forgets a file that no longer exists, with its entries. It is at once no longer among the files. Its paths lose
   * what it has one after the other, each as a whole. Until then what lived there is found as before, and a copy
   * elsewhere counts as dead, which it was when the file went.
   */
  public void remove(MergedFile file) {
    synchronized (this) {
      if (!files.remove(file.name(), file)) {
        return;
      }
      file.index = null;
      recount(file);
    }
    FileEntries.Visitor leave =
        (store, path) -> {
          change(store, path, known -> store.remove(file, known));
          directories.removedFrom(store, path);
        };
    Held entries = held(file);
    entries.segments.walk(this, file, () -> true, leave);
    entries.tombstones.walk(this, file, () -> true, leave);
    synchronized (this) {
      held.remove(file);
      directories.numbers().takeBack(file.number);
    }
  }

  // ---- counts

  /** Counts a file's bytes anew. They have changed, or what kind of file it is, or whether it is known. */
  @Override
  public synchronized void recount(MergedFile file) {
    boolean counts = file.index == this;
    long bytes = counts ? file.size() : 0;
    long dead = counts && !file.isReference() && !file.isIndexOnly() ? bytes - file.liveBytesWithEntries : 0;
    physicalBytes += bytes - file.countedBytes;
    garbage += dead - file.countedGarbage;
    file.countedBytes = bytes;
    file.countedGarbage = dead;
  }

  private void count(StoreEntries store, Segment segment, int sign) {
    if (segment != null) {
      MergedFile file = segment.file();
      file.liveCount += sign;
      file.liveBytesWithEntries += sign * segment.lengthWithEntries();
      recount(file);
      liveCount += sign;
      liveBytes += sign * segment.ownLength();
      store.liveCount += sign;
    }
  }

  /** Bytes of all live segments, without those that are in files of other checkpoints. */
  public synchronized long liveBytes() {
    return liveBytes;
  }

  /**
   * Bytes of files, but for reference files and index-only files, that are neither live segments nor their index
   * entries.
   */
  public synchronized long garbage() {
    return garbage;
  }

  /** What a file has of these bytes. */
  public synchronized long garbage(MergedFile file) {
    return file.countedGarbage;
  }

  /** Counts over the checkpoint. */
  public synchronized Totals totals() {
    return new Totals(files.size(), physicalBytes, liveCount, liveBytes);
  }

  /** The number of a file's live segments. */
  public synchronized int referenceCount(MergedFile file) {
    return file.liveCount;
  }

  // ---- entries

  /**
   * Adds entries of a file, in their order and in steps, so that a snapshot's zip is seen after its SSTs. Entries that
   * are known already change nothing.
   *
   * @return false where the file no longer exists, and nothing was added, or nothing is left of it
   */
  public boolean apply(MergedFile file, Collection<Entry> entries) {
    Iterator<Entry> rest = entries.iterator();
    while (true) {
      synchronized (this) {
        if (!isKnown(file)) {
          return false;
        }
        for (int i = 0; i < FileEntries.STEP && rest.hasNext(); i++) {
          add(rest.next(), file);
        }
      }
      if (!rest.hasNext()) {
        return true;
      }
      FileEntries.pause();
    }
  }

  /** Revisions of a partition before and after a change. */
  public record Span(long before, long after) {}

  /**
   * Adds the entries of a group as {@link #apply} does, in one step.
   *
   * @return by partition of the group, its revisions before and after, between which nothing else was added
   */
  public synchronized Map<String, Span> applyReport(MergedFile file, Collection<Entry> entries) {
    Map<String, Long> before = new HashMap<>();
    entries.forEach(entry -> before.computeIfAbsent(LogicalPaths.partition(entry.path()), this::revision));
    if (isKnown(file)) {
      entries.forEach(entry -> add(entry, file));
    }
    Map<String, Span> revisions = new LinkedHashMap<>();
    before.forEach((partition, was) -> revisions.put(partition, new Span(was, revision(partition))));
    return revisions;
  }

  private void add(Entry entry, MergedFile file) {
    String path = entry.path();
    StoreEntries store = directories.ofOrNew(path);
    change(
        store,
        path,
        known -> {
          boolean isListed = store.has(known.hash(), file, entry.isPut());
          StoreEntries.Known more = store.add(entry, file, known);
          if (more != known) {
            if (!isListed) {
              held(file).of(entry.isPut()).add(store, known.hash());
            }
            file.tombstoneCount += entry.isPut() ? 0 : 1;
            directories.changed(path);
          }
          return more;
        });
  }

  /**
   * Rule 4: deletes what is seen of a path. It reads as deleted here at once, and for others when the tombstone is
   * written.
   *
   * @return the tombstone, or null where nothing lives at the path
   */
  public synchronized Tombstone delete(String path) {
    Segment seen = find(path);
    if (seen == null) {
      return null;
    }
    Tombstone tombstone = Tombstone.of(seen);
    StoreEntries store = directories.of(path);
    change(store, path, known -> store.remember(tombstone, known));
    return tombstone;
  }

  /** Changes what is known of a path, and counts what lives there then. */
  private void change(StoreEntries store, String path, UnaryOperator<StoreEntries.Known> change) {
    StoreEntries.Known known = store.known(path);
    Segment before = known.live();
    Segment after = change.apply(known).live();
    if (before == null ? after != null : !before.equals(after)) {
      count(store, before, -1);
      count(store, after, 1);
    }
  }

  // ---- what lives

  /** The live segment of a path, or null. */
  public synchronized Segment find(String path) {
    StoreEntries store = directories.of(path);
    return store == null ? null : store.known(path).live();
  }

  /** The live segments directly in a directory. */
  public synchronized List<Segment> list(String directory) {
    StoreEntries store = directories.get(directory);
    return store == null ? new ArrayList<>() : store.list();
  }

  /** All live segments below a directory. Each directory is listed by itself. */
  public List<Segment> listRecursively(String directory) {
    List<Segment> result = new ArrayList<>(list(directory));
    for (String below : directories.below(directory).keySet()) {
      result.addAll(list(below));
    }
    return result;
  }

  /** Names of a directory's direct subdirectories in which anything lives, at any depth. */
  public synchronized List<String> subdirectories(String directory) {
    return directories.livingSubdirectories(directory);
  }

  /** Whether anything lives in or below a directory. */
  public synchronized boolean isDirectory(String directory) {
    return directories.anyLives(directory);
  }

  /** A file's live segments. */
  public List<Segment> liveSegments(MergedFile file) {
    List<Segment> found = new ArrayList<>();
    held(file)
        .segments
        .walk(
            this,
            file,
            () -> isKnown(file),
            (store, path) -> {
              Segment live = store.known(path).live();
              if (live != null && live.file() == file) {
                found.add(live);
              }
            });
    return found;
  }

  /**
   * All that a file says: each of its entries once, dead ones and tombstones too, in any order. Of a closed file that
   * was read whole, these are the entries of its index.
   */
  public List<Entry> entries(MergedFile file) {
    List<Entry> found = new ArrayList<>();
    held(file)
        .segments
        .walk(
            this,
            file,
            () -> isKnown(file),
            (store, path) ->
                store.known(path).segments().stream()
                    .filter(segment -> segment.file() == file)
                    .forEach(segment -> found.add(segment.entry())));
    held(file)
        .tombstones
        .walk(
            this,
            file,
            () -> isKnown(file),
            (store, path) ->
                store.known(path).tombstones().stream()
                    .filter(copy -> copy.file() == file)
                    .forEach(copy -> found.add(copy.tombstone().toEntry())));
    return found;
  }

  // ---- tombstones

  /** Visits the tombstones of a file, some at a time, as long as {@code goesOn} says so under the index's lock. */
  void walkTombstones(MergedFile file, BooleanSupplier goesOn, FileEntries.Visitor visitor) {
    held(file).tombstones.walk(this, file, goesOn, visitor);
  }

  // ---- partitions

  /**
   * Grows whenever an entry of a partition is added that was not known before; 0 where nothing is known. A number is
   * never used twice, also not after the partition was forgotten.
   *
   * @param partition {@code <operator>/<partition>}, as all here
   */
  public synchronized long revision(String partition) {
    return directories.revision(partition);
  }

  /** The partitions of which anything is known. */
  synchronized Set<String> partitions() {
    return directories.partitions();
  }

  /**
   * All entries of a partition, dead ones included, by the file in which they count. Another index to which they are
   * applied says the same of the partition, but for deletions that are in no file yet.
   *
   * <p>They are at least as new as a {@link #revision} that was asked before. Each directory's are of one moment, and
   * the SSTs' of a later one than the zips'. A file that goes meanwhile may be among them: what was moved out of it may
   * have come to a directory that was looked at before.
   */
  public Map<MergedFile, List<Entry>> entries(String partition) {
    Map<MergedFile, List<Entry>> found = new LinkedHashMap<>();
    BiConsumer<MergedFile, Entry> add = (file, entry) -> found.computeIfAbsent(file, f -> new ArrayList<>()).add(entry);
    for (StoreEntries store : directories.storesOf(partition)) {
      synchronized (this) {
        store.forEach(add);
      }
    }
    synchronized (this) {
      StoreEntries above = directories.of(partition);
      if (above != null) {
        above.forEach(
            (file, entry) -> {
              if (entry.path().equals(partition)) {
                add.accept(file, entry);
              }
            });
      }
    }
    return found;
  }

  /**
   * Drops all that is known of a partition, also from the files' counts. From then on these do not say what lives in
   * the files: whoever forgets anything must unlink nothing. An entry that comes meanwhile stays.
   */
  public void forgetPartition(String partition) {
    Set<MergedFile> holders = new HashSet<>();
    for (StoreEntries store : directories.storesOf(partition)) {
      List<String> paths;
      synchronized (this) {
        // What comes from now on is in another table, so this one is empty in the end.
        directories.detach(store);
        paths = store.paths();
      }
      for (int from = 0; from < paths.size(); from += FileEntries.STEP) {
        List<String> some = paths.subList(from, Math.min(from + FileEntries.STEP, paths.size()));
        synchronized (this) {
          some.forEach(path -> forget(store, path, holders));
        }
        FileEntries.pause();
      }
    }
    for (MergedFile file : holders) {
      synchronized (this) {
        held(file).segments.retain((store, hash) -> !store.isEmpty());
        held(file).tombstones.retain((store, hash) -> !store.isEmpty());
      }
    }
    forgetIn(directories.of(partition), partition);
  }

  /** Forgets a path of a directory that is above the partitions. */
  private synchronized void forgetIn(StoreEntries above, String path) {
    if (above != null) {
      Set<MergedFile> holders = new HashSet<>();
      forget(above, path, holders);
      for (MergedFile file : holders) {
        held(file).segments.retain((store, hash) -> store != above || store.has(hash, file, true));
        held(file).tombstones.retain((store, hash) -> store != above || store.has(hash, file, false));
      }
    }
  }

  private void forget(StoreEntries store, String path, Set<MergedFile> holders) {
    StoreEntries.Known known = store.known(path);
    known.segments().forEach(segment -> holders.add(segment.file()));
    for (StoreEntries.Copy copy : known.tombstones()) {
      if (copy.file() != null) {
        holders.add(copy.file());
        copy.file().tombstoneCount--;
        copy.file().unneededCount -= store.note(copy) == StoreEntries.UNNEEDED ? 1 : 0;
      }
    }
    change(store, path, store::removeAll);
    directories.removedFrom(store, path);
  }
}
