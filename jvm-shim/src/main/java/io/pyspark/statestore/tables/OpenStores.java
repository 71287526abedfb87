package io.pyspark.statestore.tables;

import io.pyspark.statestore.index.LogicalPaths;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.hadoop.fs.Path;

/**
 * The state stores that are loaded in this process, as their file managers show. Spark's RocksDB class has one from its
 * first load until it is closed. It does not close one that is wrapped to write checksum files, so a manager that is no
 * longer reachable counts as closed, too.
 */
public final class OpenStores {
  /**
   * @param path its directory, relative to {@code state/}
   */
  public record Store(Path stateDirectory, String path) {}

  /** By file manager. Managers define no equality, so this is by identity. */
  private static final Map<Object, Store> MANAGERS = new WeakHashMap<>();

  private OpenStores() {}

  /**
   * A file manager was made.
   *
   * @param store its directory, relative to {@code state/}
   */
  public static void opened(Object manager, Path stateDirectory, String store) {
    synchronized (MANAGERS) {
      MANAGERS.put(manager, new Store(stateDirectory, store));
    }
  }

  /** A file manager was closed. Returns its store where that was its last one, and null otherwise. */
  public static Store closed(Object manager) {
    synchronized (MANAGERS) {
      Store store = MANAGERS.remove(manager);
      return store == null || MANAGERS.containsValue(store) ? null : store;
    }
  }

  /** Whether a store of a partition is loaded. */
  public static boolean isAnyOpen(Path stateDirectory, String partition) {
    synchronized (MANAGERS) {
      return MANAGERS.values().stream()
          .anyMatch(
              store ->
                  store.stateDirectory.equals(stateDirectory) && LogicalPaths.partition(store.path).equals(partition));
    }
  }

  /** Whether any store of a checkpoint is loaded. */
  public static boolean isAnyOpen(Path stateDirectory) {
    synchronized (MANAGERS) {
      return MANAGERS.values().stream().anyMatch(store -> store.stateDirectory.equals(stateDirectory));
    }
  }

  static boolean isOpen(Path stateDirectory, String store) {
    synchronized (MANAGERS) {
      return MANAGERS.containsValue(new Store(stateDirectory, store));
    }
  }
}
