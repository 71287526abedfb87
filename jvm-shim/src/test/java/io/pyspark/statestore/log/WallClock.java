package io.pyspark.statestore.log;

/** Lets a test put this process's wall clock forward or back; {@code System.currentTimeMillis} itself stays as it is. */
public final class WallClock {
  private WallClock() {}

  /** From now on it shows so much more than it should. */
  public static void ahead(long millis) {
    Clocks.wall = () -> System.currentTimeMillis() + millis;
  }

  /** As in production. */
  public static void right() {
    ahead(0);
  }
}
