package io.pyspark.statestore.index;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * The directories in which the index knows anything, and the partitions that they belong to. The index's lock guards
 * it, but for a walk over directories: that sees those that are there all the while.
 */
final class Directories {
  private final FileNumbers numbers = new FileNumbers();
  private final NavigableMap<String, StoreEntries> stores = new ConcurrentSkipListMap<>();
  private final Map<String, Long> revisions = new HashMap<>();
  private long lastRevision;

  FileNumbers numbers() {
    return numbers;
  }

  /** The entries of a directory, or null. */
  StoreEntries get(String directory) {
    return stores.get(directory);
  }

  /** The entries of the directory in which a path is, or null. */
  StoreEntries of(String path) {
    return stores.get(parent(path));
  }

  StoreEntries ofOrNew(String path) {
    return stores.computeIfAbsent(parent(path), directory -> new StoreEntries(directory, numbers));
  }

  NavigableMap<String, StoreEntries> below(String directory) {
    return directory.isEmpty()
        ? stores.tailMap("", false)
        : stores.subMap(directory + "/", true, directory + "0", false);
  }

  /** Names of a directory's direct subdirectories in which anything lives, at any depth. */
  List<String> livingSubdirectories(String directory) {
    Set<String> names = new LinkedHashSet<>();
    int from = directory.isEmpty() ? 0 : directory.length() + 1;
    NavigableMap<String, StoreEntries> below = below(directory);
    for (Map.Entry<String, StoreEntries> next = below.firstEntry(); next != null; ) {
      String path = next.getKey();
      int to = path.indexOf('/', from);
      boolean lives = next.getValue().liveCount > 0;
      if (lives) {
        names.add(to < 0 ? path.substring(from) : path.substring(from, to));
      }
      // All else below that name is left out: there are many more stores than partitions.
      next = lives && to > 0 ? below.ceilingEntry(path.substring(0, to) + "0") : below.higherEntry(path);
    }
    return new ArrayList<>(names);
  }

  /** Whether anything lives in or below a directory. */
  boolean anyLives(String directory) {
    StoreEntries known = stores.get(directory);
    return known != null && known.liveCount > 0
        || below(directory).values().stream().anyMatch(store -> store.liveCount > 0);
  }

  /** Takes a directory's entries away: the directory is not known any more, or begins anew. */
  void detach(StoreEntries store) {
    stores.remove(store.directory(), store);
  }

  /** Something was removed from a path. Forgets the directory and the partition of which nothing is left. */
  void removedFrom(StoreEntries store, String path) {
    String partition = LogicalPaths.partition(path);
    if (store.isEmpty()) {
      detach(store);
    } else if (!partition.equals(path)) {
      return;
    }
    StoreEntries above = of(partition);
    if (storesOf(partition).isEmpty() && (above == null || !above.contains(partition))) {
      revisions.remove(partition);
    }
  }

  // ---- partitions

  /**
   * The directories that are a partition's. A path that is not in any, such as an operator's own file, is a partition
   * by itself, and counts in the directory {@link #of} it.
   */
  List<StoreEntries> storesOf(String partition) {
    List<StoreEntries> found = new ArrayList<>();
    if (partition.indexOf('/') > 0) {
      if (stores.containsKey(partition)) {
        found.add(stores.get(partition));
      }
      found.addAll(below(partition).values());
    }
    return found;
  }

  /** An entry of a path is new. */
  void changed(String path) {
    revisions.put(LogicalPaths.partition(path), ++lastRevision);
  }

  long revision(String partition) {
    return revisions.getOrDefault(partition, 0L);
  }

  Set<String> partitions() {
    return new TreeSet<>(revisions.keySet());
  }

  private static String parent(String path) {
    int slash = path.lastIndexOf('/');
    return slash < 0 ? "" : path.substring(0, slash);
  }
}
