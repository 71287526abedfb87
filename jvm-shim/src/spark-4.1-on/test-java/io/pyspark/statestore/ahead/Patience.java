package io.pyspark.statestore.ahead;

/** How long a task waits for what was asked ahead. */
public final class Patience {
  private static final long EVER = RowsAhead.mostWaitMs;

  private Patience() {}

  public static void millis(long millis) {
    RowsAhead.mostWaitMs = millis;
  }

  public static void asEver() {
    RowsAhead.mostWaitMs = EVER;
  }
}
