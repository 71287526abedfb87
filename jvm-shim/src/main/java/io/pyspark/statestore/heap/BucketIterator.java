package io.pyspark.statestore.heap;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/** Visits each bucket below a frozen node once. */
final class BucketIterator implements Iterator<byte[]> {
  private final Deque<Position> path = new ArrayDeque<>();
  private byte[] next;

  BucketIterator(Node root) {
    path.push(new Position(root));
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
      Position position = path.peek();
      if (position.slot == Node.SLOTS) {
        path.pop();
        continue;
      }
      Object content = position.node.slots[position.slot++];
      if (content instanceof Node child) {
        path.push(new Position(child));
      } else if (content != null) {
        while (position.slot < Node.SLOTS && position.node.slots[position.slot] == content) {
          position.slot++;
        }
        next = (byte[]) content;
      }
    }
  }

  /**
   * All buckets that may have rows whose hash begins with the same bits as {@code hash}.
   *
   * @param root the root of a trie that nobody changes meanwhile, except the calling thread
   * @param bits how many of the highest bits count
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
    // Only some bits of the last level belong to the prefix. Its slots have few buckets, or all of them are wanted.
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

  private static final class Position {
    private final Node node;
    private int slot;

    Position(Node node) {
      this.node = node;
    }
  }
}
