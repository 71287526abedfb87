package io.pyspark.statestore.heap;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/** Visits each bucket below a frozen node once. Those that were spilled are read, and stay in their files. */
final class BucketIterator implements Iterator<byte[]> {
  private final Deque<Position> path = new ArrayDeque<>();

  /** A bucket, or a spilled one. */
  private Object next;

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
    byte[] found = Node.bucketOf(next);
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
      Object content = position.node.seen(position.slot++);
      if (content instanceof Node child) {
        path.push(new Position(child));
      } else if (content != null) {
        while (position.slot < Node.SLOTS && Node.isSame(position.node.seen(position.slot), content)) {
          position.slot++;
        }
        next = content;
      }
    }
  }

  /**
   * All buckets that may have rows whose hash begins with the same bits as {@code hash}. Those that were spilled come
   * back.
   *
   * @param root the root of a trie that nobody changes meanwhile, except the calling thread
   * @param bits how many of the highest bits count
   */
  static Iterator<byte[]> beginningWith(Node root, long hash, int bits) {
    Node node = root;
    int level = 0;
    while (Node.BITS * (level + 1) <= bits) {
      int slot = Node.slotAt(hash, level);
      Object content = node.slots[slot];
      if (!(content instanceof Node child)) {
        return content == null ? Collections.emptyIterator() : List.of(node.use(slot, content)).iterator();
      }
      node = child;
      level++;
    }
    // Only some bits of the last level belong to the prefix. Its slots have few buckets, or all of them are wanted.
    int open = Node.BITS * (level + 1) - bits;
    int first = Node.slotAt(hash, level) & -(1 << open);
    List<Place> found = new ArrayList<>();
    addPlaces(node, first, first + (1 << open), found);
    Iterator<Place> places = found.iterator();
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        return places.hasNext();
      }

      @Override
      public byte[] next() {
        Place place = places.next();
        return place.node.use(place.slot, place.content);
      }
    };
  }

  /** Takes a bucket that is on the disk. */
  interface Visitor {
    void visit(Node node, int slot, SpilledBucket spilled);
  }

  /** Visits the buckets on the disk that may have rows whose hash begins so, and returns how many. For any thread. */
  static int visitSpilled(Node root, long hash, int bits, Visitor visitor) {
    Node node = root;
    for (int level = 0; ; level++) {
      int slot = Node.slotAt(hash, level);
      if (Node.BITS * (level + 1) > bits) {
        int open = Node.BITS * (level + 1) - bits;
        int first = slot & -(1 << open);
        List<Place> found = new ArrayList<>();
        addPlaces(node, first, first + (1 << open), found);
        found.removeIf(place -> !(place.content instanceof SpilledBucket));
        found.forEach(place -> visitor.visit(place.node, place.slot, (SpilledBucket) place.content));
        return found.size();
      }
      Object content = node.seen(slot);
      if (content instanceof SpilledBucket spilled) {
        visitor.visit(node, slot, spilled);
        return 1;
      }
      if (!(content instanceof Node child)) {
        return 0;
      }
      node = child;
    }
  }

  /** Where a bucket was found. Its node may have another one there when it is used, and then keeps that. */
  private record Place(Node node, int slot, Object content) {}

  private static void addPlaces(Node node, int from, int to, List<Place> found) {
    Object last = null;
    for (int slot = from; slot < to; slot++) {
      Object content = node.seen(slot);
      if (content instanceof Node child) {
        addPlaces(child, 0, Node.SLOTS, found);
      } else if (content != null && !Node.isSame(content, last)) {
        found.add(new Place(node, slot, content));
      }
      last = content;
    }
  }

  private static final class Position {
    private final Node node;
    private int slot;

    Position(Node node) {
      this.node = node;
    }
  }
}
