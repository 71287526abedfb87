package io.pyspark.statestore.tables;

import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.write.Commit;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * SSTs and archived logs of RocksDB snapshots whose {@code .zip} is not written yet, by store.
 *
 * <p>Spark uploads them first, and the zip that names them last. They must not be visible before the zip, so they wait
 * here and go with it in one group, as its companions. If the zip fails they stay: Spark 4.3 counts a snapshot's upload
 * as done once it has ended, however it ended ({@code RocksDBFileMapping.snapshotsPendingUpload}), so a later zip may
 * name them as long as the store is loaded.
 *
 * <p>They take local disk, because they link to files that RocksDB may have deleted since. So each zip removes what
 * earlier zips have named and it does not: that is gone from the store, and no later zip names it.
 */
final class StagedFiles {
  private final Map<String, List<Staged>> byStore = new HashMap<>();

  private static final long NOT_NAMED = -1;

  /**
   * @param namedBy the newest version whose zip has named it, or {@code NOT_NAMED}
   */
  private record Staged(Commit.Item item, long sinceNanos, long namedBy) {
    Staged named(long version) {
      return new Staged(item, sinceNanos, Math.max(namedBy, version));
    }

    String path() {
      return item.path();
    }

    boolean closeIf(boolean unneeded) {
      if (unneeded) {
        item.payload().close();
      }
      return unneeded;
    }
  }

  synchronized void add(String store, Commit.Item item) {
    List<Staged> all = byStore.computeIfAbsent(store, s -> new ArrayList<>());
    all.removeIf(old -> old.closeIf(old.path().equals(item.path())));
    all.add(new Staged(item, System.nanoTime(), NOT_NAMED));
  }

  /** A zip has come. Drops what only earlier zips have named, because it is gone from the store. */
  synchronized void named(String store, long version, Set<String> names) {
    List<Staged> all = byStore.getOrDefault(store, new ArrayList<>());
    all.replaceAll(staged -> names.contains(staged.path()) ? staged.named(version) : staged);
    all.removeIf(staged -> staged.closeIf(staged.namedBy() != NOT_NAMED && staged.namedBy() < version));
  }

  /** Takes a zip's companions. What else is staged for its store may belong to an upload that is under way. */
  synchronized List<Commit.Item> take(String store, Predicate<String> needed) {
    List<Commit.Item> taken = new ArrayList<>();
    byStore
        .getOrDefault(store, new ArrayList<>())
        .removeIf(
            staged -> {
              boolean take = needed.test(staged.path());
              if (take) {
                taken.add(staged.item());
              }
              return take;
            });
    return taken;
  }

  /** Puts the companions of a version's zip back, because its group failed. */
  synchronized void giveBack(String store, long version, List<Commit.Item> items) {
    items.forEach(item -> add(store, item));
    Set<String> paths = items.stream().map(Commit.Item::path).collect(Collectors.toSet());
    byStore
        .getOrDefault(store, new ArrayList<>())
        .replaceAll(staged -> paths.contains(staged.path()) ? staged.named(version) : staged);
  }

  synchronized Commit.Item find(String path) {
    String store = LogicalPaths.storeOfImmutable(path);
    return store == null
        ? null
        : byStore.getOrDefault(store, List.of()).stream()
            .filter(staged -> staged.path().equals(path))
            .map(Staged::item)
            .findFirst()
            .orElse(null);
  }

  /** Drops a staged file, which Spark deletes before its zip has come. */
  synchronized void drop(String path) {
    List<Staged> all = byStore.get(LogicalPaths.storeOfImmutable(path));
    if (all != null) {
      all.removeIf(staged -> staged.closeIf(staged.path().equals(path)));
    }
  }

  /**
   * Drops what is staged for a store that was closed. Once it is loaded again, Spark uploads anew under other names.
   */
  synchronized void dropStore(String store) {
    List<Staged> all = byStore.remove(store);
    if (all != null) {
      all.forEach(staged -> staged.item().payload().close());
    }
  }

  /**
   * Drops what has waited for {@code 2 × afterMs} in stores that are not loaded. No zip will name it any more, and one
   * that did would be refused.
   */
  synchronized void dropUnclaimed(long afterMs, Predicate<String> isLoaded) {
    long now = System.nanoTime();
    Predicate<Staged> isOld = staged -> (now - staged.sinceNanos()) / 1_000_000 >= 2 * afterMs;
    byStore
        .entrySet()
        .removeIf(
            store -> {
              // Asked last, because it goes through all stores, and this is called ten times a second.
              if (store.getValue().stream().anyMatch(isOld) && !isLoaded.test(store.getKey())) {
                store.getValue().removeIf(staged -> staged.closeIf(isOld.test(staged)));
              }
              return store.getValue().isEmpty();
            });
  }

  synchronized void closeAll() {
    byStore.values().forEach(all -> all.forEach(staged -> staged.item().payload().close()));
    byStore.clear();
  }
}
