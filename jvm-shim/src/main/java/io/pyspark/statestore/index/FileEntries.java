package io.pyspark.statestore.index;

import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * Where one merged file's segments are in the index, or its tombstones: in which directories, and by which hashes of
 * names. Eight bytes each, in the order in which they came, each pair once. The index's lock guards it.
 */
final class FileEntries {
  /** So many entries are looked at before others get the lock. */
  static final int STEP = 500;

  /** Whoever waits for a monitor is not there at once when it is free, so a walk stands back for a moment. */
  private static final long PAUSE_NANOS = 20_000;

  private StoreEntries[] stores = {};
  private int[] hashes = {};
  private int size;

  /** The list as it was at a moment: it may be read while the list changes, since nothing in it is overwritten. */
  private record View(StoreEntries[] stores, int[] hashes, int size) {}

  int size() {
    return size;
  }

  void add(StoreEntries store, int hash) {
    if (size == hashes.length) {
      int capacity = size + (size >> 3) + 4;
      stores = Arrays.copyOf(stores, capacity);
      hashes = Arrays.copyOf(hashes, capacity);
    }
    stores[size] = store;
    hashes[size++] = hash;
  }

  /** Sees the paths of a file, each with the entries of its directory. */
  interface Visitor {
    void visit(StoreEntries store, String path);
  }

  /**
   * Visits the paths that are in the list now, some at a time under the index's lock.
   *
   * @param lock the index's
   * @param file whose list this is
   * @param goesOn asked under the lock each time before some are visited; the walk ends where it says no
   */
  void walk(Object lock, MergedFile file, BooleanSupplier goesOn, Visitor visitor) {
    View view;
    synchronized (lock) {
      view = new View(stores, hashes, size);
    }
    for (int from = 0; from < view.size; from += STEP) {
      if (from > 0) {
        pause();
      }
      synchronized (lock) {
        if (!goesOn.getAsBoolean()) {
          return;
        }
        for (int i = from; i < Math.min(from + STEP, view.size); i++) {
          StoreEntries store = view.stores[i];
          store.paths(view.hashes[i], file).forEach(path -> visitor.visit(store, path));
        }
      }
    }
  }

  /** Lets others have the lock, which the current thread does not hold. */
  static void pause() {
    LockSupport.parkNanos(PAUSE_NANOS);
  }

  /** Says what stays. */
  interface Filter {
    boolean keeps(StoreEntries store, int hash);
  }

  /** Drops all others. */
  void retain(Filter filter) {
    View before = new View(stores, hashes, size);
    clear();
    for (int i = 0; i < before.size; i++) {
      if (filter.keeps(before.stores[i], before.hashes[i])) {
        add(before.stores[i], before.hashes[i]);
      }
    }
  }

  void clear() {
    stores = new StoreEntries[0];
    hashes = new int[0];
    size = 0;
  }
}
