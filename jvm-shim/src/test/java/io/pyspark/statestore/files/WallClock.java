package io.pyspark.statestore.files;

/** Lets a test put the log's wall clock forward or back. {@code System.currentTimeMillis} itself stays as it is. */
public final class WallClock {
  private WallClock() {}

  /** From now on it is so many milliseconds ahead. */
  public static void ahead(long millis) {
    Clocks.wall = () -> System.currentTimeMillis() + millis;
  }

  /** As in production. */
  public static void right() {
    ahead(0);
  }
}
