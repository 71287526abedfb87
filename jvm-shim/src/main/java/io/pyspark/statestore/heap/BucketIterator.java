package io.pyspark.statestore.heap;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/** All buckets below a frozen node, each once. */
final class BucketIterator implements Iterator<byte[]> {
  private final Deque<Place> path = new ArrayDeque<>();
  private byte[] next;

  BucketIterator(Node root) {
    path.push(new Place(root));
    advance();
  }

  @Override
  public boolean hasNext() {
    return next != null;
  }

  @Override
  public byte[] next() {
    if (next == null) {
      throw new NoSuchElementException();
    }
    byte[] found = next;
    advance();
    return found;
  }

  private void advance() {
    next = null;
    while (next == null && !path.isEmpty()) {
      Place place = path.peek();
      if (place.slot == Node.SLOTS) {
        path.pop();
        continue;
      }
      Object content = place.node.slots[place.slot++];
      if (content instanceof Node child) {
        path.push(new Place(child));
      } else if (content != null) {
        while (place.slot < Node.SLOTS && place.node.slots[place.slot] == content) {
          place.slot++;
        }
        next = (byte[]) content;
      }
    }
  }

  /**
   * All buckets in which rows may be whose hash begins with the bits of another.
   *
   * @param root of a trie; not changed meanwhile, or read by the thread that changes it
   * @param bits how many of the highest bits of {@code hash} count
   */
  static Iterator<byte[]> beginningWith(Node root, long hash, int bits) {
    Node node = root;
    int level = 0;
    while (Node.BITS * (level + 1) <= bits) {
      Object content = node.slots[Node.slotAt(hash, level)];
      if (!(content instanceof Node child)) {
        return content == null ? Collections.emptyIterator() : List.of((byte[]) content).iterator();
      }
      node = child;
      level++;
    }
    // The last level's bits belong to the prefix in part. These are the children of one prefix: few, or all wanted.
    int open = Node.BITS * (level + 1) - bits;
    int first = Node.slotAt(hash, level) & -(1 << open);
    List<byte[]> found = new ArrayList<>();
    for (int slot = first; slot < first + (1 << open); slot++) {
      Object content = node.slots[slot];
      if (content instanceof Node child) {
        new BucketIterator(child).forEachRemaining(found::add);
      } else if (content != null && (found.isEmpty() || found.get(found.size() - 1) != content)) {
        found.add((byte[]) content);
      }
    }
    return found.iterator();
  }

  private static final class Place {
    private final Node node;
    private int slot;

    Place(Node node) {
      this.node = node;
    }
  }
}
