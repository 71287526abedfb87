package io.pyspark.statestore.rocks;

/** Has reads of a disk that is not slow count as slow ones. */
public final class SlowDisk {
  private static final double BEFORE = DiskReads.slowMicros;

  private SlowDisk() {}

  /** Reads that take so long are slow from now on; 0 for all. */
  public static void from(double micros) {
    DiskReads.slowMicros = micros;
  }

  /** As ever. */
  public static void asEver() {
    DiskReads.slowMicros = BEFORE;
  }
}
