package io.pyspark.statestore.heap;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A node of the trie, with 32 slots. Each is empty (null), or has a {@link Bucket} (a byte array), a {@link
 * SpilledBucket} in its place, or a node of the next level. A bucket whose rows agree in fewer than five bits of this
 * level fills several neighbouring slots, a power of two.
 *
 * <p>What a node says never changes for whoever may not change it, but where it is may: any thread puts a spilled
 * bucket in the place of a bucket, or the other way round, by comparing and swapping each of its slots. So two slots of
 * the same bucket may differ for a moment, and {@link #isSame} compares what they say.
 */
final class Node {
  static final int BITS = 5;
  static final int SLOTS = 1 << BITS;

  /** Bytes of this object and its array, on a 64-bit JVM with compressed pointers. */
  static final int BYTES = 32 + 16 + 4 * SLOTS;

  private static final VarHandle SLOT = MethodHandles.arrayElementVarHandle(Object[].class);

  /**
   * Whether a bucket of this process was ever spilled. Until then two slots are of one bucket if it is the same array.
   */
  private static boolean hasSpilled;

  /** The holder of this mark may change the node; for all others it is immutable. */
  final Edit edit;

  final Object[] slots;

  /** One bit for each slot: whether its bucket was made in the version that made this node. */
  int ownBuckets;

  /**
   * One bit for each slot: whether its bucket was read or written since {@link HeapSpill} has last looked. Threads may
   * overwrite each other's, which makes a bucket look older than it is.
   */
  int used;

  Node(Edit edit) {
    this(edit, new Object[SLOTS], 0, 0);
  }

  private Node(Edit edit, Object[] slots, int ownBuckets, int used) {
    this.edit = edit;
    this.slots = slots;
    this.ownBuckets = ownBuckets;
    this.used = used;
  }

  Node copy(Edit by) {
    return new Node(by, slots.clone(), by.version() == edit.version() ? ownBuckets : 0, used);
  }

  /** The bucket in a slot, wherever it is; null for none. */
  byte[] bucket(int slot) {
    return bucketOf(slots[slot]);
  }

  /** What a slot says, if it is no node: a bucket, which is read of its file where it was spilled. */
  static byte[] bucketOf(Object content) {
    return content instanceof SpilledBucket spilled ? spilled.read() : (byte[]) content;
  }

  /** What a slot says that a read needs: a bucket, which comes back where it was spilled, and stays for a while. */
  byte[] use(int slot, Object content) {
    if ((used >>> slot & 1) == 0) {
      used |= 1 << slot;
    }
    return content instanceof SpilledBucket spilled ? bringBack(spilled) : (byte[]) content;
  }

  private byte[] bringBack(SpilledBucket spilled) {
    byte[] bucket = spilled.read();
    boolean isBack = false;
    for (int slot = 0; slot < SLOTS; slot++) {
      isBack |= slots[slot] == spilled && replace(slot, spilled, bucket);
    }
    if (isBack) {
      spilled.isBack();
    }
    return bucket;
  }

  /** What is in a slot, and all that was written before it was put there; for threads that do not write the trie. */
  Object seen(int slot) {
    return SLOT.getAcquire(slots, slot);
  }

  /** Puts a bucket in the place of a spilled one, or the other way round; false where there is something else. */
  boolean replace(int slot, Object before, Object after) {
    return SLOT.compareAndSet(slots, slot, before, after);
  }

  /** Buckets are going to be spilled. */
  static void spilling() {
    hasSpilled = true;
  }

  boolean isOwn(int slot) {
    return (ownBuckets >>> slot & 1) != 0;
  }

  void fill(int start, int size, byte[] bucket) {
    for (int slot = start; slot < start + size; slot++) {
      SLOT.setRelease(slots, slot, bucket);
    }
    ownBuckets |= mask(start, size);
    used |= mask(start, size);
  }

  void setChild(int slot, Node child) {
    SLOT.setRelease(slots, slot, child);
    ownBuckets &= ~(1 << slot);
  }

  /** The number of slots around one that its bucket fills, or that are empty with it and can be filled together. */
  int sizeAround(int slot) {
    Object content = seen(slot);
    int size = 1;
    while (size < SLOTS && isFilledWith(content, buddyOf(slot & -size, size), size)) {
      size *= 2;
    }
    return size;
  }

  boolean isFilledWith(Object content, int start, int size) {
    for (int slot = start; slot < start + size; slot++) {
      if (!isSame(seen(slot), content)) {
        return false;
      }
    }
    return true;
  }

  /**
   * Whether two slots of a node, read by {@link #seen}, have the same bucket. The first rows of two buckets have
   * different hashes there, or these buckets would be one.
   */
  static boolean isSame(Object one, Object other) {
    if (one == other) {
      return true;
    }
    boolean canDiffer =
        hasSpilled && one != null && other != null && !(one instanceof Node) && !(other instanceof Node);
    return canDiffer && firstHash(one) == firstHash(other);
  }

  private static long firstHash(Object bucket) {
    return bucket instanceof SpilledBucket spilled ? spilled.firstHash() : Bucket.hash((byte[]) bucket, 0);
  }

  static int buddyOf(int start, int size) {
    return start ^ size;
  }

  static int slotAt(long hash, int level) {
    return (int) (hash >>> (64 - BITS * (level + 1))) & (SLOTS - 1);
  }

  static int mask(int start, int size) {
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
