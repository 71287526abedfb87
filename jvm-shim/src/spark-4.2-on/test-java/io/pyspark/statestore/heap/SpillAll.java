package io.pyspark.statestore.heap;

/**
 * Spills what it can of all stores of this process that may spill, and tidies up, all the time, whatever memory has.
 * Its disk counts as slow, so that operators look ahead.
 */
public final class SpillAll {
  private static volatile Thread thread;
  private static int fileBytes;
  private static long slowNanos;

  private SpillAll() {}

  /** Begins, with files that are small, so that some are given up. */
  public static synchronized void start() {
    fileBytes = SpillFile.fullBytes;
    SpillFile.fullBytes = 20_000;
    slowNanos = HeapAhead.slowNanos;
    HeapAhead.slowNanos = 0;
    thread = new Thread(SpillAll::run, "spill-all");
    thread.setDaemon(true);
    thread.start();
  }

  /** Ends. */
  public static synchronized void stop() throws InterruptedException {
    Thread ended = thread;
    thread = null;
    ended.join();
    SpillFile.fullBytes = fileBytes;
    HeapAhead.slowNanos = slowNanos;
  }

  private static void run() {
    while (thread == Thread.currentThread()) {
      try {
        for (HeapSpill each : HeapSpillMonitor.stores()) {
          each.spill(Long.MAX_VALUE);
          each.tidy(1_000_000_000L);
        }
        Thread.sleep(1);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }
}
