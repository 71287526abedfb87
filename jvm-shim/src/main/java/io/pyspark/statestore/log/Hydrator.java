package io.pyspark.statestore.log;

import java.io.IOException;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fetches in the background what is missing of the SSTs that stores of this process have opened: of the store that read
 * something last first, and at most so many bytes a second in all. While reads wait for what is missing it fetches an
 * eighth of that: what they need they fetch themselves, and the two would share processors and bandwidth. Its threads end
 * when there is nothing to do, and keep no process alive.
 *
 * <p>What cannot be fetched is tried again, at growing intervals, as long as its store is open. A read that needs it
 * fails by itself, so nothing is lost where this gives nobody an error.
 */
final class Hydrator {
  private static final Logger LOG = LoggerFactory.getLogger(Hydrator.class);

  private static final String NAME = "pyspark-statestore-hydrator-";
  private static final int THREADS = 2;
  private static final int PART = 1 << 20;
  private static final long IDLE_MS = 5_000;
  private static final long FIRST_PAUSE_MS = 500;
  private static final long LONGEST_PAUSE_MS = 30_000;
  /** While reads wait, so many times fewer bytes a second. */
  private static final int YIELD = 8;
  /** A read has waited lately if it was within this time. */
  static volatile long latelyNanos = 10_000_000;

  private static final Object LOCK = new Object();
  private static final Set<LazyFiles> STORES = new HashSet<>();
  private static final Map<LazyFiles, Pause> PAUSES = new HashMap<>();
  private static int threads;
  /** When the next part may be fetched. */
  private static long freeNanos = System.nanoTime();
  private static volatile long waitedNanos = System.nanoTime() - TimeUnit.DAYS.toNanos(1);
  /** Tests let stores be as they were loaded. */
  static volatile boolean paused;

  private record Pause(int failures, long untilNanos) {}

  private Hydrator() {}

  /** A store has files of which something is missing. */
  static void add(LazyFiles store) {
    synchronized (LOCK) {
      STORES.add(store);
      PAUSES.remove(store);
      while (threads < THREADS) {
        threads++;
        Thread thread = new Thread(Hydrator::run, NAME + threads);
        thread.setDaemon(true);
        thread.start();
      }
      LOCK.notifyAll();
    }
  }

  static void remove(LazyFiles store) {
    synchronized (LOCK) {
      STORES.remove(store);
      PAUSES.remove(store);
    }
  }

  /** A read waits for what is missing, or has just waited. */
  static void readWaits() {
    waitedNanos = System.nanoTime();
  }

  /** Whether the current thread is one of those that fetch in the background. */
  static boolean isCurrentThread() {
    return Thread.currentThread().getName().startsWith(NAME);
  }

  private static void run() {
    try {
      for (LazyFiles store = next(); store != null; store = next()) {
        fetchSome(store);
      }
    } catch (InterruptedException | Error e) {
      synchronized (LOCK) {
        threads--;
      }
      if (e instanceof Error error) {
        throw error;
      }
    }
  }

  /** The store to go on with; null after a time without any, when the thread ends. */
  private static LazyFiles next() throws InterruptedException {
    synchronized (LOCK) {
      long idleSince = System.nanoTime();
      while (true) {
        STORES.removeIf(LazyFiles::isWhole);
        PAUSES.keySet().retainAll(STORES);
        long now = System.nanoTime();
        LazyFiles found = paused ? null : STORES.stream()
            .filter(store -> !PAUSES.containsKey(store) || PAUSES.get(store).untilNanos - now <= 0)
            .max(Comparator.comparingLong(LazyFiles::touchedNanos))
            .orElse(null);
        if (found != null) {
          return found;
        }
        if (STORES.isEmpty() && TimeUnit.NANOSECONDS.toMillis(now - idleSince) >= IDLE_MS) {
          threads--;
          return null;
        }
        LOCK.wait(STORES.isEmpty() ? IDLE_MS : FIRST_PAUSE_MS / 5);
      }
    }
  }

  private static void fetchSome(LazyFiles store) throws InterruptedException {
    long rate = store.bytesPerSecond();
    // Of what takes longer than a second the next store would have to wait for the end.
    int part = rate == 0 ? PART : (int) Math.max(PartialFile.chunkBytes, Math.min(PART, rate / YIELD));
    try {
      for (PartialFile file : store.toHydrate()) {
        awaitTurn(rate, (int) Math.min(part, file.missing()));
        if (file.fetchSome(part) > 0) {
          rest(store, null);
          return;
        }
      }
      // What is missing is being fetched by others.
      pause(store, 0, FIRST_PAUSE_MS / 5);
    } catch (IOException | RuntimeException e) {
      rest(store, e);
    }
  }

  /** Waits until a part may be fetched. */
  private static void awaitTurn(long bytesPerSecond, int bytes) throws InterruptedException {
    if (bytesPerSecond == 0 || bytes == 0) {
      return;
    }
    long waitNanos;
    synchronized (LOCK) {
      long now = System.nanoTime();
      long start = Math.max(now, freeNanos);
      long share = now - waitedNanos < latelyNanos ? YIELD : 1;
      freeNanos = start + (long) (1e9 * share * bytes / bytesPerSecond);
      waitNanos = start - now;
    }
    TimeUnit.NANOSECONDS.sleep(waitNanos);
  }

  private static void rest(LazyFiles store, Exception failure) {
    synchronized (LOCK) {
      if (failure == null || !STORES.contains(store)) {
        PAUSES.remove(store);
        return;
      }
      int failures = PAUSES.containsKey(store) ? PAUSES.get(store).failures + 1 : 1;
      long ms = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << Math.min(failures - 1, 10));
      pause(store, failures, ms);
      if (failures == 1) {
        LOG.warn("SSTs of a store that is open cannot be completed now; what it needs is fetched when it is read", failure);
      }
    }
  }

  private static void pause(LazyFiles store, int failures, long ms) {
    synchronized (LOCK) {
      if (STORES.contains(store)) {
        PAUSES.put(store, new Pause(failures, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms)));
      }
    }
  }
}
