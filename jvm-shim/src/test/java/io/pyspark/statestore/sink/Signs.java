package io.pyspark.statestore.sink;

/** Lets a test decide how soon an attempt at a batch says that it is at work. */
public final class Signs {
  private Signs() {}

  /** From now on it says so at this interval, in milliseconds. */
  public static void every(long ms) {
    AtWork.everyMs = ms;
  }

  /** After so many milliseconds without a sign an attempt has been silent. */
  public static void lease(long ms) {
    AtWork.leaseMs = ms;
  }
}
