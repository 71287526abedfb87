package io.pyspark.statestore.log;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * SSTs and archived logs of RocksDB snapshots whose {@code .zip} is not written yet, by store.
 *
 * <p>Spark uploads them first and the zip that names them last. Nobody may see them before it, so they wait here and go
 * with the zip in one group. Where the zip fails they stay: Spark 4.3 takes a snapshot's upload as done once it has
 * ended, however it ended ({@code RocksDBFileMapping.snapshotsPendingUpload}), so a later zip may name them.
 */
final class StagedFiles {
  private final Map<String, List<Commit.Item>> byStore = new HashMap<>();
  private final Map<String, Long> changedNanos = new HashMap<>();

  /** The store directory that a snapshot's file belongs to, or null where {@code path} is no such file. */
  static String storeOf(String path) {
    int slash = path.lastIndexOf('/');
    String parent = slash < 0 ? "" : path.substring(0, slash);
    int up = parent.lastIndexOf('/');
    String folder = parent.substring(up + 1);
    boolean immutable =
        folder.equals("SSTs") && path.endsWith(".sst") || folder.equals("logs") && path.endsWith(".log");
    return immutable && up > 0 ? parent.substring(0, up) : null;
  }

  synchronized void add(String store, Commit.Item item) {
    changedNanos.put(store, System.nanoTime());
    List<Commit.Item> items = byStore.computeIfAbsent(store, s -> new ArrayList<>());
    items.removeIf(old -> {
      boolean again = old.path().equals(item.path());
      if (again) {
        old.payload().close();
      }
      return again;
    });
    items.add(item);
  }

  /** Takes what is staged for a store, for the group of its zip. */
  synchronized List<Commit.Item> take(String store) {
    List<Commit.Item> items = byStore.remove(store);
    return items == null ? List.of() : items;
  }

  /** Gives back what a failed group had taken. */
  synchronized void giveBack(String store, List<Commit.Item> items) {
    items.forEach(item -> add(store, item));
  }

  synchronized Commit.Item find(String path) {
    String store = storeOf(path);
    return store == null
        ? null
        : byStore.getOrDefault(store, List.of()).stream()
            .filter(i -> i.path().equals(path))
            .findFirst()
            .orElse(null);
  }

  /** Drops a staged file that Spark deletes before its zip came. */
  synchronized void drop(String path) {
    List<Commit.Item> items = byStore.get(storeOf(path));
    if (items != null) {
      items.removeIf(i -> {
        boolean dropped = i.path().equals(path);
        if (dropped) {
          i.payload().close();
        }
        return dropped;
      });
    }
  }

  /** Drops what no zip has come for: its store lives elsewhere by now, and a zip that names it would be refused. */
  synchronized void dropUnclaimed(long afterMs) {
    long now = System.nanoTime();
    byStore.entrySet().removeIf(store -> {
      boolean unclaimed = (now - changedNanos.get(store.getKey())) / 1_000_000 >= 2 * afterMs;
      if (unclaimed) {
        store.getValue().forEach(item -> item.payload().close());
      }
      return unclaimed;
    });
    changedNanos.keySet().retainAll(byStore.keySet());
  }

  synchronized void closeAll() {
    byStore.values().forEach(items -> items.forEach(i -> i.payload().close()));
    byStore.clear();
  }
}
