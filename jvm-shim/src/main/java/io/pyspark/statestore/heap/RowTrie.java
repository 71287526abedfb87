package io.pyspark.statestore.heap;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * A hash map of rows that costs nothing to copy: the copy and the original share their nodes, and each copies only what
 * it changes, which is a bucket and the few nodes above it. One thread writes a trie; others may read, and copy, the
 * tries that it was copied from at the same time.
 */
final class RowTrie {
  static final int MAX_ROWS = 24;
  static final int MAX_BYTES = 4096;

  /** The last level for which a hash has all bits. */
  private static final int LAST_LEVEL = 64 / Node.BITS - 1;

  private static final int ARRAY_HEADER = 16;

  private final Object version = new Object();
  private Object baseVersion;
  private Node.Edit edit = new Node.Edit(version);
  private Node root = new Node(edit);
  private int size;
  private long bytes = Node.BYTES;
  private long ownBytes = Node.BYTES;

  /** Makes this empty trie a copy of another one. */
  void branch(RowTrie base) {
    base.freeze();
    root = base.root;
    size = base.size;
    bytes = base.bytes;
    ownBytes = 0;
    baseVersion = base.version;
  }

  int size() {
    return size;
  }

  /** Bytes of heap that this version keeps reachable. */
  long bytes() {
    return bytes;
  }

  /** Bytes of heap that this version keeps reachable, and the one that it was copied from does not. */
  long ownBytes() {
    return ownBytes;
  }

  boolean isCopyOf(RowTrie base) {
    return baseVersion == base.version;
  }

  /** The root, for the thread that writes, or if no thread does. */
  Node root() {
    return root;
  }

  /** The root of what is in the trie now; later writes do not change it. */
  Node freeze() {
    edit = new Node.Edit(version);
    return root;
  }

  /** The bucket that has all rows of a hash; null for none. */
  byte[] bucket(long hash) {
    Node node = root;
    for (int level = 0; ; level++) {
      Object content = node.slots[Node.slotAt(hash, level)];
      if (!(content instanceof Node child)) {
        return (byte[]) content;
      }
      node = child;
    }
  }

  void put(long hash, UnsafeRow key, UnsafeRow value, boolean checked, int checksum) {
    root = own(root);
    Node node = root;
    int level = 0;
    int slot = Node.slotAt(hash, 0);
    while (node.slots[slot] instanceof Node child) {
      Node owned = own(child);
      node.setChild(slot, owned);
      node = owned;
      slot = Node.slotAt(hash, ++level);
    }
    byte[] old = node.bucket(slot);
    int row = Bucket.find(old, hash, key);
    byte[] made = Bucket.with(old, row, hash, key, value, checked, checksum);
    int width = node.sizeAround(slot);
    drop(node, slot);
    place(node, level, slot & -width, width, made);
    size += row < 0 ? 1 : 0;
  }

  /** Removes a row that is there. */
  void remove(long hash, int row) {
    Node[] path = new Node[LAST_LEVEL + 1];
    int level = 0;
    path[0] = root = own(root);
    int slot = Node.slotAt(hash, 0);
    while (path[level].slots[slot] instanceof Node child) {
      Node owned = own(child);
      path[level].setChild(slot, owned);
      path[++level] = owned;
      slot = Node.slotAt(hash, level);
    }
    byte[] rest = Bucket.without(path[level].bucket(slot), row);
    int width = path[level].sizeAround(slot);
    int start = slot & -width;
    drop(path[level], slot);
    fill(path[level], start, width, rest);
    size--;
    shrink(path, level, start, width, hash);
  }

  /**
   * Merges neighbouring buckets that have become small, and replaces a node that has one bucket left by that bucket.
   */
  private void shrink(Node[] path, int lowest, int firstStart, int firstWidth, long hash) {
    int level = lowest;
    int start = firstStart;
    int width = firstWidth;
    while (true) {
      Node node = path[level];
      while (width < Node.SLOTS) {
        int buddy = Node.buddyOf(start, width);
        Object other = node.slots[buddy];
        if (other instanceof Node || !node.isFilledWith(other, buddy, width)) {
          return;
        }
        byte[] mine = node.bucket(start);
        byte[] theirs = (byte[]) other;
        if (!areFew(mine, theirs)) {
          return;
        }
        drop(node, start);
        drop(node, buddy);
        start &= ~width;
        width *= 2;
        fill(node, start, width, Bucket.merge(mine, theirs));
      }
      if (level == 0) {
        return;
      }
      byte[] all = node.bucket(0);
      drop(node, 0);
      bytes -= Node.BYTES;
      ownBytes -= Node.BYTES;
      level--;
      start = Node.slotAt(hash, level);
      width = 1;
      fill(path[level], start, width, all);
    }
  }

  private static boolean areFew(byte[] left, byte[] right) {
    return Bucket.count(left) + Bucket.count(right) <= MAX_ROWS / 2 && length(left) + length(right) <= MAX_BYTES / 2;
  }

  private static long length(byte[] bucket) {
    return bucket == null ? 0 : bucket.length;
  }

  private void place(Node node, int level, int start, int width, byte[] bucket) {
    boolean fits = Bucket.count(bucket) <= MAX_ROWS && length(bucket) <= MAX_BYTES || Bucket.count(bucket) <= 1;
    if (fits || Bucket.isOneHash(bucket) || level == LAST_LEVEL && width == 1) {
      fill(node, start, width, bucket);
    } else if (width > 1) {
      int half = width / 2;
      int bit = Node.BITS * (level + 1) - Integer.numberOfTrailingZeros(width);
      place(node, level, start, half, Bucket.select(bucket, bit, false));
      place(node, level, start + half, half, Bucket.select(bucket, bit, true));
    } else {
      Node child = new Node(edit);
      bytes += Node.BYTES;
      ownBytes += Node.BYTES;
      node.setChild(start, child);
      place(child, level + 1, 0, Node.SLOTS, bucket);
    }
  }

  private Node own(Node node) {
    if (node.edit == edit) {
      return node;
    }
    if (node.edit.version() != version) {
      ownBytes += Node.BYTES;
    }
    return node.copy(edit);
  }

  private void fill(Node node, int start, int width, byte[] bucket) {
    node.fill(start, width, bucket);
    bytes += heap(bucket);
    ownBytes += heap(bucket);
  }

  private void drop(Node node, int slot) {
    long freed = heap(node.bucket(slot));
    bytes -= freed;
    ownBytes -= node.isOwn(slot) ? freed : 0;
  }

  static long heap(byte[] bucket) {
    return bucket == null ? 0 : (bucket.length + ARRAY_HEADER + 7L) & -8L;
  }
}
