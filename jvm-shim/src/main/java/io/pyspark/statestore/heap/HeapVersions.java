package io.pyspark.statestore.heap;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;

/**
 * The versions of a heap store whose rows may be spilled: those that the store has loaded, and those that tasks write.
 * It keeps none of them in memory.
 */
final class HeapVersions {
  /** The newest last. Guarded by itself. */
  private final List<WeakReference<RowTrie>> tries = new ArrayList<>();

  /** Of them, those of the last {@link #keepOnly}. */
  private final Set<RowTrie> loaded = Collections.newSetFromMap(new WeakHashMap<>());

  /** Whether all count as loaded, because nobody says which are. */
  private final boolean areAllLoaded;

  HeapVersions(boolean areAllLoaded) {
    this.areAllLoaded = areAllLoaded;
  }

  /** A task writes a version. Whether that is new. */
  boolean add(RowTrie trie) {
    synchronized (tries) {
      tries.removeIf(each -> each.get() == null);
      if (tries.stream().anyMatch(each -> each.get() == trie)) {
        return false;
      }
      return tries.add(new WeakReference<>(trie));
    }
  }

  /**
   * The store has these versions now, the oldest first, and none of those any more that this was said of before. What
   * other attempts of a task write meanwhile stays.
   */
  void keepOnly(List<RowTrie> versions) {
    synchronized (tries) {
      tries.removeIf(each -> each.get() == null || loaded.contains(each.get()) || versions.contains(each.get()));
      List<WeakReference<RowTrie>> written = List.copyOf(tries);
      tries.clear();
      versions.forEach(each -> tries.add(new WeakReference<>(each)));
      tries.addAll(written);
      loaded.clear();
      loaded.addAll(versions);
    }
  }

  List<RowTrie> newestFirst() {
    List<RowTrie> found = new ArrayList<>();
    synchronized (tries) {
      for (int i = tries.size() - 1; i >= 0; i--) {
        RowTrie trie = tries.get(i).get();
        if (trie != null) {
          found.add(trie);
        }
      }
    }
    return found;
  }

  /** Bytes of heap that they would take together if nothing was spilled, about; what they share counts once. */
  long bytes() {
    long sum = 0;
    List<RowTrie> versions = newestFirst();
    for (RowTrie each : versions) {
      // What an attempt shares with a version that is gone, others have, or nobody.
      boolean isAttempt = each.isCopy() && !isLoaded(each);
      sum += isAttempt || versions.stream().anyMatch(each::isCopyOf) ? each.ownBytes() : each.bytes();
    }
    return sum;
  }

  private boolean isLoaded(RowTrie trie) {
    synchronized (tries) {
      return areAllLoaded || loaded.contains(trie);
    }
  }

  void clear() {
    synchronized (tries) {
      tries.clear();
    }
  }
}
