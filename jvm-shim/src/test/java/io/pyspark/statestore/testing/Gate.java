package io.pyspark.statestore.testing;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Stops a thread of this process at a chosen place, so that the test decides what happens meanwhile. The places are
 * calls of {@link GatedFileSystems}, {@code GatedFileManager}, {@link PagedFileSystem} and {@link AzureLikeFileSystem},
 * and rows of a query: {@link Tripwire}, {@link GatedCodec}.
 */
public final class Gate {
  private static final long PATIENCE_SECONDS = 60;

  /** The place of {@link #holdNth}. */
  public static final String NTH = "nth";

  private static final AtomicInteger LEFT = new AtomicInteger();
  private static final Map<String, Stop> STOPS = new ConcurrentHashMap<>();

  private record Stop(String contains, AtomicReference<Thread> held, CountDownLatch reached, CountDownLatch open) {}

  private Gate() {}

  /** Stops the next thread that passes a place: "before create", "after close", "row" and the like. */
  public static void hold(String place, String contains) {
    STOPS.put(place, new Stop(contains, new AtomicReference<>(), new CountDownLatch(1), new CountDownLatch(1)));
  }

  /** Stops the n-th call from now on, whatever its operation, at the place {@link #NTH}. */
  public static void holdNth(String contains, int n) {
    LEFT.set(n);
    hold(NTH, contains);
  }

  /** Lets the thread at {@link #NTH} go on, and stops the n-th call from there. */
  public static void goOnToNth(String contains, int n) {
    Stop before = STOPS.get(NTH);
    holdNth(contains, n);
    before.open.countDown();
  }

  /** Waits for so many milliseconds for a thread to stop at a place; whether one has. */
  public static boolean isHeld(String place, long millis) throws InterruptedException {
    return STOPS.get(place).reached.await(millis, TimeUnit.MILLISECONDS);
  }

  /** Waits for a thread to stop at a place; whether one has. */
  public static boolean awaitHeld(String place) throws InterruptedException {
    return STOPS.get(place).reached.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  /** Lets the thread at this place go on. */
  public static void release(String place) {
    STOPS.get(place).open.countDown();
  }

  /** Interrupts the thread at this place, as Spark does with the thread of a task that it kills. */
  public static void interrupt(String place) {
    STOPS.get(place).held.get().interrupt();
  }

  /** Lets all threads go on, and stops none any more. */
  public static void releaseAll() {
    STOPS.values().forEach(stop -> stop.open.countDown());
    STOPS.clear();
  }

  static void pass(String place, String what) {
    Stop nth = STOPS.get(NTH);
    if (nth != null && place.startsWith("before ") && what.contains(nth.contains) && LEFT.decrementAndGet() == 0) {
      stop(nth, place, what);
    }
    stop(STOPS.get(place), place, what);
  }

  private static void stop(Stop stop, String place, String what) {
    if (stop == null || !what.contains(stop.contains) || !stop.held.compareAndSet(null, Thread.currentThread())) {
      return;
    }
    stop.reached.countDown();
    try {
      if (!stop.open.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
        throw new IllegalStateException("nobody opened the gate at " + place + " " + what);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted at the gate at " + place + " " + what, e);
    }
  }
}
