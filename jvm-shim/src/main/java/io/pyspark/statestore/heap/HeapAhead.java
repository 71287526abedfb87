package io.pyspark.statestore.heap;

import io.pyspark.statestore.files.Parallel;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import io.pyspark.statestore.read.StoreAhead;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.BooleanSupplier;

/**
 * Brings buckets of a heap store back from a slow disk before somebody reads them one after the other, several at the
 * same time.
 */
public final class HeapAhead implements StoreAhead<HeapAhead.Key> {
  /** Reading ahead pays from about here: a thread takes ten microseconds or more to be handed a key. */
  static volatile long slowNanos = 100_000;

  /** About what a key takes in lists. */
  private static final int BYTES_OF_A_KEY = 50;

  private static final ExecutorService READERS =
      Executors.newCachedThreadPool(Threads.daemons("pyspark-statestore-spill-ahead"));

  private final HeapSpill spill;

  /** Whose reads are only noted now, and what they asked for; null mostly. */
  private volatile Noting noting;

  private record Noting(Thread thread, List<Key> found) {}

  /**
   * What somebody is about to read.
   *
   * @param bits how many of the highest bits of the hash count
   */
  public record Key(RowTrie rows, long hash, int bits) {}

  HeapAhead(HeapSpill spill) {
    this.spill = spill;
  }

  /** Whether reads would wait: something is on the disk, and reads of it were slow lately. */
  @Override
  public boolean isNeeded() {
    return spill.spilledBytes() > 0 && spill.readNanos() >= slowNanos;
  }

  @Override
  public long waits() {
    return spill.reads();
  }

  /** What comes back stays for a while. */
  @Override
  public long mostKeys(int windows) {
    return Long.MAX_VALUE;
  }

  /** Notes a read, where the current thread only notes what it reads. */
  boolean isNoted(RowTrie rows, long hash, int bits) {
    Noting now = noting;
    boolean isNoted = now != null && now.thread == Thread.currentThread();
    if (isNoted) {
      now.found.add(new Key(rows, hash, bits));
    }
    return isNoted;
  }

  @Override
  public List<Key> keysOf(BooleanSupplier reads, long bytes) {
    List<Key> found = new ArrayList<>();
    noting = new Noting(Thread.currentThread(), found);
    try {
      while ((long) BYTES_OF_A_KEY * found.size() < bytes && reads.getAsBoolean()) {
        // The next one.
      }
    } finally {
      noting = null;
    }
    return found;
  }

  /** Brings back what keys need. What cannot be read is left: whoever reads it is told. */
  @Override
  public LookAhead fetch(Collection<Key> keys, int parallelism, BooleanSupplier isCancelled) throws IOException {
    List<Callable<Integer>> tasks = new ArrayList<>();
    for (Key key : keys) {
      if (key.rows.hasSpilled(key.hash, key.bits)) {
        tasks.add(() -> isCancelled.getAsBoolean() ? 0 : key.rows.bringBack(key.hash, key.bits));
      }
    }
    int fetched = Parallel.sum(READERS, parallelism, tasks, "state was read ahead");
    return new LookAhead(1, keys.size(), keys.size() - tasks.size(), fetched);
  }
}
