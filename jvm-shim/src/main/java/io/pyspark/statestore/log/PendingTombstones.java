package io.pyspark.statestore.log;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/** Deletions that wait for a group to ride in, so that deleting costs no write of its own. */
final class PendingTombstones {
  private List<Tombstone> waiting = new ArrayList<>();
  /** What waits or is being written, by the order in which it came. */
  private final Map<Tombstone, Long> notDurable = new IdentityHashMap<>();

  private long count;
  private long oldestNanos;
  private volatile long newestNanos = System.nanoTime();

  synchronized void add(Tombstone tombstone) {
    if (waiting.isEmpty()) {
      oldestNanos = System.nanoTime();
    }
    newestNanos = System.nanoTime();
    waiting.add(tombstone);
    notDurable.putIfAbsent(tombstone, ++count);
  }

  synchronized List<Tombstone> take() {
    List<Tombstone> taken = waiting;
    waiting = new ArrayList<>();
    return taken;
  }

  /** What was taken is durable. */
  synchronized void written(List<Tombstone> taken) {
    taken.forEach(notDurable::remove);
  }

  /** The group of what was taken has failed. */
  synchronized void giveBack(List<Tombstone> taken) {
    taken.forEach(this::add);
  }

  /** How many there have been: what comes after this does not count for {@link #areDurable}. */
  synchronized long count() {
    return count;
  }

  /** Whether the first {@code upTo} of all deletions are durable. */
  synchronized boolean areDurable(long upTo) {
    return notDurable.values().stream().noneMatch(number -> number <= upTo);
  }

  /** For how long nothing was deleted. */
  long quietMs() {
    return (System.nanoTime() - newestNanos) / 1_000_000;
  }

  /** Whether no group has come to take them for {@code ms}. */
  synchronized boolean haveWaited(long ms) {
    return !waiting.isEmpty() && (System.nanoTime() - oldestNanos) / 1_000_000 >= ms;
  }

  synchronized boolean isEmpty() {
    return waiting.isEmpty();
  }
}
