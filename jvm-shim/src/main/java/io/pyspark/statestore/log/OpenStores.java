package io.pyspark.statestore.log;

import java.util.Map;
import java.util.WeakHashMap;
import org.apache.hadoop.fs.Path;

/**
 * The state stores that are loaded in this process, as their file managers show. Spark's RocksDB class has one from its
 * first load until it is closed. It does not close one that is wrapped to write checksum files, so a manager that is no
 * longer reachable counts as closed, too.
 */
public final class OpenStores {
  private record Store(Path stateDirectory, String path) {}

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

  /** A file manager was closed. After a store's last one, no zip will name what is staged for the store. */
  public static void closed(Object manager) {
    Store store;
    synchronized (MANAGERS) {
      store = MANAGERS.remove(manager);
      if (store == null || MANAGERS.containsValue(store)) {
        return;
      }
    }
    MergedLog log = MergedLogs.open(store.stateDirectory);
    if (log != null) {
      log.storeClosed(store.path);
    }
  }

  /** Whether a store of a partition is loaded. */
  static boolean isAnyOpen(Path stateDirectory, String partition) {
    synchronized (MANAGERS) {
      return MANAGERS.values().stream().anyMatch(store -> store.stateDirectory.equals(stateDirectory)
          && ServedPartitions.partition(store.path).equals(partition));
    }
  }

  /** Whether any store of a checkpoint is loaded. */
  static boolean isAnyOpen(Path stateDirectory) {
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
