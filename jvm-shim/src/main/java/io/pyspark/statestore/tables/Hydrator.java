package io.pyspark.statestore.tables;

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
 * eighth of that: what they need they fetch themselves, and the two would share processors and bandwidth. Its threads
 * end when there is nothing to do, and keep no process alive.
 *
 * <p>A file that cannot be fetched is tried again, at growing intervals, as long as its store is open; the store's
 * other files go on. What is known to be gone for long fails the store ({@link PartialFile}). Whatever else is thrown
 * here, a thread goes on: a store is given to it once, so what a thread that ends leaves behind nobody else would
 * fetch.
 */
public final class Hydrator {
  private static final Logger LOG = LoggerFactory.getLogger(Hydrator.class);

  private static final String NAME = "pyspark-statestore-hydrator-";
  private static final int THREADS = 2;

  /** With those that a file system does not answer; others take their place. */
  private static final int MOST_THREADS = 16;

  /** Whoever waits longer for a part of a file does not count, and nobody else begins with the same store. */
  static volatile long stuckNanos = 10_000_000_000L;

  private static final int PART = 1 << 20;
  private static final long IDLE_MS = 5_000;
  private static final long PAUSE_MS = 100;

  /** While reads wait, so many times fewer bytes a second. */
  private static final int YIELD = 8;

  /** A read has waited lately if it was within this time. */
  static volatile long latelyNanos = 100_000_000;

  private static final Object LOCK = new Object();
  private static final Set<LazyFiles> STORES = new HashSet<>();

  /** Until when nothing can be done for a store: others fetch what is missing, or its files rest. */
  private static final Map<LazyFiles, Long> PAUSES = new HashMap<>();

  private static int threads;

  /** What threads fetch now. */
  private static final Map<Thread, Fetch> FETCHES = new HashMap<>();

  /** When the next part may be fetched. */
  private static long freeNanos = System.nanoTime();

  private static volatile long waitedNanos = System.nanoTime() - TimeUnit.DAYS.toNanos(1);

  /** Tests let stores be as they were loaded. */
  static volatile boolean paused;

  private record Fetch(LazyFiles store, long sinceNanos) {
    boolean isStuck() {
      return System.nanoTime() - sinceNanos > stuckNanos;
    }
  }

  private Hydrator() {}

  /** There is something to do for a store that nobody waits for. */
  static void add(LazyFiles store) {
    synchronized (LOCK) {
      STORES.add(store);
      PAUSES.remove(store);
      LOCK.notifyAll();
      startThreads();
    }
  }

  /** Starts a thread in the place of each that waits for a file system. Called all the time. */
  public static void goOn() {
    synchronized (LOCK) {
      if (!STORES.isEmpty()) {
        startThreads();
      }
    }
  }

  private static void startThreads() {
    while (threads - stuck() < THREADS && threads < MOST_THREADS) {
      Thread thread = new Thread(Hydrator::run, NAME + (threads + 1));
      thread.setDaemon(true);
      try {
        thread.start();
      } catch (OutOfMemoryError e) {
        // The process is at its limit of threads. Reads fetch what they need, and the next load tries again.
        LOG.warn(
            "Could not start a thread that completes SSTs in the background. What to do: allow this process more"
                + " threads (ulimit -u) or memory",
            e);
        return;
      }
      threads++;
    }
  }

  private static int stuck() {
    return (int) FETCHES.values().stream().filter(Fetch::isStuck).count();
  }

  private static boolean isStuck(LazyFiles store) {
    return FETCHES.values().stream().anyMatch(fetch -> fetch.store == store && fetch.isStuck());
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

  private static void run() {
    while (true) {
      LazyFiles store = null;
      try {
        store = next();
        if (store == null) {
          return;
        }
        fetchSome(store);
      } catch (InterruptedException e) {
        LOG.debug("Threads that complete SSTs end by themselves. An interrupt is of no effect", e);
      } catch (RuntimeException | Error e) {
        goOnAfter(e, store);
      }
    }
  }

  /** After an error that is of no file, such as one of memory. */
  private static void goOnAfter(Throwable e, LazyFiles store) {
    try {
      Thread.sleep(PAUSE_MS);
      pause(store);
      LOG.info("SSTs are not completed for a moment; trying again", e);
    } catch (InterruptedException | RuntimeException | Error again) {
      // Once more, and there is nothing left to be done about it here.
    }
  }

  /** The store to go on with; null after a time without any, when the thread ends. */
  private static LazyFiles next() throws InterruptedException {
    synchronized (LOCK) {
      long idleSince = System.nanoTime();
      while (true) {
        STORES.removeIf(store -> !store.needsHydrator());
        PAUSES.keySet().retainAll(STORES);
        if (threads - stuck() > THREADS) {
          threads--; // one that was stuck goes on
          return null;
        }
        long now = System.nanoTime();
        LazyFiles found =
            paused
                ? null
                : STORES.stream()
                    .filter(store -> !isStuck(store))
                    .filter(store -> !PAUSES.containsKey(store) || PAUSES.get(store) - now <= 0)
                    .max(Comparator.comparingLong(LazyFiles::touchedNanos))
                    .orElse(null);
        if (found != null) {
          return found;
        }
        if (STORES.isEmpty() && TimeUnit.NANOSECONDS.toMillis(now - idleSince) >= IDLE_MS) {
          threads--;
          return null;
        }
        LOCK.wait(STORES.isEmpty() ? IDLE_MS : PAUSE_MS);
      }
    }
  }

  private static void fetchSome(LazyFiles store) throws InterruptedException {
    long rate = store.bytesPerSecond();
    // Of what takes longer than a second the next store would have to wait for the end.
    int part = rate == 0 ? PART : (int) Math.max(PartialFile.chunkBytes, Math.min(PART, rate / YIELD));
    for (PartialFile file : store.toHydrate()) {
      if (!store.isForHydrator(file) || !file.isRested()) {
        continue;
      }
      try {
        awaitTurn(rate, (int) Math.min(part, file.missing()));
        if (fetch(store, file, part) > 0) {
          file.wentOn();
          return;
        }
      } catch (IOException | RuntimeException | Error e) {
        rest(store, file, e);
      }
    }
    pause(store);
  }

  private static long fetch(LazyFiles store, PartialFile file, int part) throws IOException {
    synchronized (LOCK) {
      FETCHES.put(Thread.currentThread(), new Fetch(store, System.nanoTime()));
    }
    try {
      return file.fetchSome(part);
    } finally {
      synchronized (LOCK) {
        FETCHES.remove(Thread.currentThread());
      }
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

  private static void rest(LazyFiles store, PartialFile file, Throwable failure) {
    synchronized (LOCK) {
      if (!STORES.contains(store)) {
        return;
      }
    }
    if (file.rest() == 1) {
      LOG.info("{} cannot be completed now; what is needed of it is fetched when it is read", file.path(), failure);
    }
  }

  private static void pause(LazyFiles store) {
    synchronized (LOCK) {
      if (STORES.contains(store)) {
        PAUSES.put(store, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PAUSE_MS));
      }
    }
  }
}
