package io.pyspark.statestore.write;

import io.pyspark.statestore.index.Tombstone;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/** Tombstones that wait for a group to go with, so that a deletion costs no write of its own. */
public final class PendingTombstones {
  private List<Tombstone> waiting = new ArrayList<>();

  /** Those that wait or are being written, with their place in the order in which they came. */
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

  /** Those that were taken are durable. */
  synchronized void written(List<Tombstone> taken) {
    taken.forEach(notDurable::remove);
  }

  /** The group of those that were taken has failed. */
  synchronized void giveBack(List<Tombstone> taken) {
    taken.forEach(this::add);
  }

  /** How many deletions there have been, for {@link #areDurable}. */
  public synchronized long count() {
    return count;
  }

  /** Whether the first {@code upTo} deletions are durable. */
  public synchronized boolean areDurable(long upTo) {
    return notDurable.values().stream().noneMatch(number -> number <= upTo);
  }

  /** How long ago the last deletion came. */
  public long quietMs() {
    return (System.nanoTime() - newestNanos) / 1_000_000;
  }

  /** Whether the oldest has waited for {@code ms}. */
  public synchronized boolean haveWaited(long ms) {
    return !waiting.isEmpty() && (System.nanoTime() - oldestNanos) / 1_000_000 >= ms;
  }

  public synchronized boolean isEmpty() {
    return waiting.isEmpty();
  }
}
