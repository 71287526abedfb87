package io.pyspark.statestore.heap;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.function.LongConsumer;
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

  /** A version says that it has got larger when it is by so many bytes. */
  private static final int GROWTH = 256 << 10;

  private static final VarHandle ROOT;

  static {
    try {
      ROOT = MethodHandles.lookup().findVarHandle(RowTrie.class, "root", Node.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Hears by how much the trie has grown; null where nobody has to. */
  private final LongConsumer grown;

  private long saidBytes;

  private final Weight weight = new Weight();
  private Node.Edit edit = new Node.Edit(weight.version);
  private Node root = new Node(edit);
  private int size;

  /**
   * What a version takes. Whoever has it does not keep the version in memory. One thread writes it; others see how much
   * it was a moment ago.
   */
  static final class Weight {
    private final Object version = new Object();
    private Object baseVersion;

    /** Bytes of heap that the version keeps reachable, or would if nothing of it was spilled. */
    long bytes = Node.BYTES;

    /** Those of them that the version from which it was copied does not keep reachable. */
    long ownBytes = Node.BYTES;

    /** Whether {@link HeapVersions} knows of the version. */
    boolean isKnown;

    /** Whether the store has said that it has the version. */
    boolean isLoaded;

    boolean isCopy() {
      return baseVersion != null;
    }

    boolean isCopyOf(Weight base) {
      return baseVersion == base.version;
    }
  }

  /**
   * An empty one.
   *
   * @param grown hears, before a put, how many bytes it has taken; null if nobody has to
   */
  RowTrie(LongConsumer grown) {
    this.grown = grown;
  }

  /** Makes this empty trie a copy of another one. */
  void branch(RowTrie base) {
    base.freeze();
    setRoot(base.root);
    size = base.size;
    weight.bytes = base.weight.bytes;
    weight.ownBytes = 0;
    weight.baseVersion = base.weight.version;
  }

  int size() {
    return size;
  }

  Weight weight() {
    return weight;
  }

  /** The root, for the thread that writes, or if no thread does. */
  Node root() {
    return root;
  }

  /** The root, for any thread that changes nothing but where buckets are. */
  Node seenRoot() {
    return (Node) ROOT.getAcquire(this);
  }

  private void setRoot(Node node) {
    ROOT.setRelease(this, node);
  }

  /** The root of what is in the trie now; later writes do not change it. */
  Node freeze() {
    edit = new Node.Edit(weight.version);
    return root;
  }

  /** The bucket that has all rows of a hash; null for none. */
  byte[] bucket(long hash) {
    Node node = root;
    for (int level = 0; ; level++) {
      int slot = Node.slotAt(hash, level);
      Object content = node.slots[slot];
      if (!(content instanceof Node child)) {
        return content == null ? null : node.use(slot, content);
      }
      node = child;
    }
  }

  /** Whether a bucket is on the disk that may have rows whose hash begins so. For any thread. */
  boolean hasSpilled(long hash, int bits) {
    return visitSpilled(hash, bits, (node, slot, spilled) -> {}) > 0;
  }

  /** Brings such buckets back, and returns how many. For any thread. */
  int bringBack(long hash, int bits) {
    return visitSpilled(hash, bits, Node::use);
  }

  private int visitSpilled(long hash, int bits, BucketIterator.Visitor visitor) {
    return BucketIterator.visitSpilled(seenRoot(), hash, bits, visitor);
  }

  void put(long hash, UnsafeRow key, UnsafeRow value, boolean checked, int checksum) {
    if (grown != null && weight.ownBytes - saidBytes > GROWTH) {
      long bytes = weight.ownBytes - saidBytes;
      saidBytes = weight.ownBytes;
      grown.accept(bytes);
    }
    setRoot(own(root));
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
    setRoot(own(root));
    path[0] = root;
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
        Object mine = node.seen(start);
        Object theirs = node.seen(buddy);
        if (theirs instanceof Node || !node.isFilledWith(theirs, buddy, width) || !areFew(mine, theirs)) {
          return;
        }
        byte[] both = Bucket.merge(Node.bucketOf(mine), Node.bucketOf(theirs));
        drop(node, start);
        drop(node, buddy);
        start &= ~width;
        width *= 2;
        fill(node, start, width, both);
      }
      if (level == 0) {
        return;
      }
      byte[] all = node.bucket(0);
      drop(node, 0);
      weight.bytes -= Node.BYTES;
      weight.ownBytes -= Node.BYTES;
      level--;
      start = Node.slotAt(hash, level);
      width = 1;
      fill(path[level], start, width, all);
    }
  }

  private static boolean areFew(Object left, Object right) {
    return count(left) + count(right) <= MAX_ROWS / 2 && length(left) + length(right) <= MAX_BYTES / 2;
  }

  private static int count(Object bucket) {
    return bucket instanceof SpilledBucket spilled ? spilled.rows() : Bucket.count((byte[]) bucket);
  }

  private static long length(Object bucket) {
    if (bucket == null) {
      return 0;
    }
    return bucket instanceof SpilledBucket spilled ? spilled.length() : ((byte[]) bucket).length;
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
      weight.bytes += Node.BYTES;
      weight.ownBytes += Node.BYTES;
      node.setChild(start, child);
      place(child, level + 1, 0, Node.SLOTS, bucket);
    }
  }

  private Node own(Node node) {
    if (node.edit == edit) {
      return node;
    }
    if (node.edit.version() != weight.version) {
      weight.ownBytes += Node.BYTES;
    }
    return node.copy(edit);
  }

  private void fill(Node node, int start, int width, byte[] bucket) {
    node.fill(start, width, bucket);
    weight.bytes += heap(bucket);
    weight.ownBytes += heap(bucket);
  }

  private void drop(Node node, int slot) {
    Object content = node.slots[slot];
    long freed = heap(content);
    weight.bytes -= freed;
    weight.ownBytes -= node.isOwn(slot) ? freed : 0;
    if (content instanceof SpilledBucket spilled) {
      spilled.isReplaced();
    }
  }

  /** Bytes of heap of a bucket, or of one that was spilled if it comes back. */
  static long heap(Object bucket) {
    return Bucket.heap(length(bucket));
  }
}
