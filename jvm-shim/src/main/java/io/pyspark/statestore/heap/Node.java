package io.pyspark.statestore.heap;

import java.util.Arrays;

/**
 * A node of the trie, with 32 slots. Each is empty (null), or has a {@link Bucket} (a byte array) or a node of the next
 * level. A bucket whose rows agree in fewer than five bits of this level fills several neighbouring slots, a power of
 * two.
 */
final class Node {
  static final int BITS = 5;
  static final int SLOTS = 1 << BITS;

  /** Bytes of this object and its array, on a 64-bit JVM with compressed pointers. */
  static final int BYTES = 24 + 16 + 4 * SLOTS;

  /** The holder of this mark may change the node; for all others it is immutable. */
  final Edit edit;

  final Object[] slots;

  /** One bit for each slot: whether its bucket was made in the version that made this node. */
  int ownBuckets;

  Node(Edit edit) {
    this(edit, new Object[SLOTS], 0);
  }

  private Node(Edit edit, Object[] slots, int ownBuckets) {
    this.edit = edit;
    this.slots = slots;
    this.ownBuckets = ownBuckets;
  }

  Node copy(Edit by) {
    return new Node(by, slots.clone(), by.version() == edit.version() ? ownBuckets : 0);
  }

  byte[] bucket(int slot) {
    return (byte[]) slots[slot];
  }

  boolean isOwn(int slot) {
    return (ownBuckets >>> slot & 1) != 0;
  }

  void fill(int start, int size, byte[] bucket) {
    Arrays.fill(slots, start, start + size, bucket);
    ownBuckets |= mask(start, size);
  }

  void setChild(int slot, Node child) {
    slots[slot] = child;
    ownBuckets &= ~(1 << slot);
  }

  /** The number of slots around one that its bucket fills, or that are empty with it and can be filled together. */
  int sizeAround(int slot) {
    int size = 1;
    while (size < SLOTS && isFilledWith(slots[slot], buddyOf(slot & -size, size), size)) {
      size *= 2;
    }
    return size;
  }

  boolean isFilledWith(Object content, int start, int size) {
    for (int slot = start; slot < start + size; slot++) {
      if (slots[slot] != content) {
        return false;
      }
    }
    return true;
  }

  static int buddyOf(int start, int size) {
    return start ^ size;
  }

  static int slotAt(long hash, int level) {
    return (int) (hash >>> (64 - BITS * (level + 1))) & (SLOTS - 1);
  }

  private static int mask(int start, int size) {
    return size == SLOTS ? -1 : ((1 << size) - 1) << start;
  }

  /** The right to change the nodes that have this mark. A trie takes a new mark when it is copied or iterated over. */
  static final class Edit {
    /** Nodes and buckets that are made count as this version's own. */
    private final Object version;

    Edit(Object version) {
      this.version = version;
    }

    Object version() {
      return version;
    }
  }
}
