package io.pyspark.statestore.heap;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;

/**
 * The versions of a heap store whose rows may be spilled: those that the store has loaded, and those that tasks write.
 * It keeps none of them in memory.
 */
final class HeapVersions {
  /** The newest last. Guarded by itself, as is what tries keep for this class. */
  private final List<WeakReference<RowTrie>> tries = new ArrayList<>();

  /** Whether all count as loaded, because nobody says which are. */
  private final boolean areAllLoaded;

  HeapVersions(boolean areAllLoaded) {
    this.areAllLoaded = areAllLoaded;
  }

  /** A task writes a version, of which nobody knows yet. */
  void add(RowTrie trie) {
    synchronized (tries) {
      tries.removeIf(each -> each.get() == null);
      tries.add(known(trie));
    }
  }

  private static WeakReference<RowTrie> known(RowTrie trie) {
    if (trie.known == null) {
      trie.known = new WeakReference<>(trie);
    }
    return trie.known;
  }

  /**
   * The store has these versions now, the oldest first, and none of those any more that this was said of before. What
   * other attempts of a task write meanwhile stays.
   */
  void keepOnly(List<RowTrie> versions) {
    synchronized (tries) {
      List<WeakReference<RowTrie>> written = new ArrayList<>();
      for (WeakReference<RowTrie> each : tries) {
        RowTrie trie = each.get();
        if (trie != null && !trie.isLoaded && !versions.contains(trie)) {
          written.add(each);
        }
      }
      tries.clear();
      for (RowTrie each : versions) {
        each.isLoaded = true;
        tries.add(known(each));
      }
      tries.addAll(written);
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
      return areAllLoaded || trie.isLoaded;
    }
  }

  void clear() {
    synchronized (tries) {
      tries.clear();
    }
  }
}
