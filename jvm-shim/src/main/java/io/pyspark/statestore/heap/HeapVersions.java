package io.pyspark.statestore.heap;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;

/**
 * The versions of a heap store whose rows may be spilled: those that the store has loaded, and those that tasks write.
 *
 * <p>It keeps none of them in memory. Who asks how much memory they take does so all the time, and would keep a version
 * alive with each look: a collector that marks what is reachable beside the tasks takes what was looked at for
 * reachable. So what versions take is in objects of their own ({@link RowTrie.Weight}).
 */
final class HeapVersions {
  private static final class Known {
    private final WeakReference<RowTrie> trie;
    private final RowTrie.Weight weight;

    Known(RowTrie trie) {
      this.trie = new WeakReference<>(trie);
      this.weight = trie.weight();
    }

    boolean isGone() {
      return trie.refersTo(null);
    }
  }

  private final Object lock = new Object();

  /** The newest last. Guarded by the lock, as is what weights say of it. */
  private List<Known> versions = new ArrayList<>();

  /** Whether all count as loaded, because nobody says which are. */
  private final boolean areAllLoaded;

  HeapVersions(boolean areAllLoaded) {
    this.areAllLoaded = areAllLoaded;
  }

  /** A task writes a version, of which nobody knows yet. */
  void add(RowTrie trie) {
    synchronized (lock) {
      versions.removeIf(Known::isGone);
      versions.add(new Known(trie));
      trie.weight().isKnown = true;
    }
  }

  /**
   * The store has these versions now, the oldest first, and none of those any more that this was said of before. What
   * other attempts of a task write meanwhile stays. If memory runs out meanwhile, nothing changes.
   */
  void keepOnly(List<RowTrie> loaded) {
    synchronized (lock) {
      List<Known> now = new ArrayList<>();
      for (RowTrie each : loaded) {
        now.add(new Known(each));
      }
      for (Known each : versions) {
        if (!each.weight.isLoaded && !each.isGone() && now.stream().noneMatch(kept -> kept.weight == each.weight)) {
          now.add(each);
        }
      }
      for (Known each : versions) {
        each.weight.isKnown &= !each.weight.isLoaded;
        each.weight.isLoaded = false;
      }
      for (int each = 0; each < loaded.size(); each++) {
        RowTrie.Weight weight = now.get(each).weight;
        weight.isKnown = true;
        weight.isLoaded = true;
      }
      versions = now;
    }
  }

  List<RowTrie> newestFirst() {
    List<RowTrie> found = new ArrayList<>();
    synchronized (lock) {
      for (int i = versions.size() - 1; i >= 0; i--) {
        RowTrie trie = versions.get(i).trie.get();
        if (trie != null) {
          found.add(trie);
        }
      }
    }
    return found;
  }

  /** Bytes of heap that they would take together if nothing was spilled, about; what they share counts once. */
  long bytes() {
    synchronized (lock) {
      long sum = 0;
      for (Known each : versions) {
        if (!each.isGone()) {
          // What an attempt shares with a version that is gone, others have, or nobody.
          boolean isAttempt = each.weight.isCopy() && !areAllLoaded && !each.weight.isLoaded;
          sum += isAttempt || hasBaseOf(each.weight) ? each.weight.ownBytes : each.weight.bytes;
        }
      }
      return sum;
    }
  }

  private boolean hasBaseOf(RowTrie.Weight copy) {
    for (Known each : versions) {
      if (copy.isCopyOf(each.weight) && !each.isGone()) {
        return true;
      }
    }
    return false;
  }

  void clear() {
    synchronized (lock) {
      versions.clear();
    }
  }
}
