package io.pyspark.statestore.testing;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * Fails or stops a task at a chosen row of a query: {@code SELECT reflect('io.pyspark.statestore.testing.Tripwire',
 * 'pass', cast(k AS string))}.
 */
public final class Tripwire {
  private static volatile String value = "";
  private static final AtomicInteger LEFT = new AtomicInteger();

  private Tripwire() {}

  /** Makes rows with this value fail their tasks, so many times. */
  public static void arm(String trips, int times) {
    value = trips;
    LEFT.set(times);
  }

  /** How many more tasks will fail. */
  public static int left() {
    return LEFT.get();
  }

  /** Called for each row: fails, stops at the {@link Gate} called "row", or returns the value. */
  public static String pass(String row) {
    if (value.equals(row) && LEFT.getAndUpdate(n -> Math.max(0, n - 1)) > 0) {
      throw new IllegalStateException("tripped over " + row);
    }
    Gate.pass("row", row);
    return row;
  }
}
