package io.pyspark.statestore.log;

import java.util.ArrayList;
import java.util.List;

/** Deletions that wait for a group to ride in, so that deleting costs no write of its own. */
final class PendingTombstones {
  private List<Tombstone> waiting = new ArrayList<>();
  private int inFlight;
  private long oldestNanos;

  synchronized void add(Tombstone tombstone) {
    if (waiting.isEmpty()) {
      oldestNanos = System.nanoTime();
    }
    waiting.add(tombstone);
  }

  synchronized List<Tombstone> take() {
    List<Tombstone> taken = waiting;
    waiting = new ArrayList<>();
    inFlight += taken.size();
    return taken;
  }

  /** What was taken is durable. */
  synchronized void written(List<Tombstone> taken) {
    inFlight -= taken.size();
  }

  /** The group of what was taken has failed. */
  synchronized void giveBack(List<Tombstone> taken) {
    inFlight -= taken.size();
    taken.forEach(this::add);
  }

  /** Whether every deletion that this process's index knows of is durable. */
  synchronized boolean allDurable() {
    return waiting.isEmpty() && inFlight == 0;
  }

  /** Whether no group has come to take them for {@code ms}. */
  synchronized boolean haveWaited(long ms) {
    return !waiting.isEmpty() && (System.nanoTime() - oldestNanos) / 1_000_000 >= ms;
  }

  synchronized boolean isEmpty() {
    return waiting.isEmpty();
  }
}
