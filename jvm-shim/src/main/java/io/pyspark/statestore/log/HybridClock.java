package io.pyspark.statestore.log;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/**
 * Stamps that never go back, close to wall time, and above every stamp that was seen: {@code max(unix_ms << 16,
 * highest seen + 1)}. A process that has read another's writes stamps its own above them, however its wall clock runs.
 */
public final class HybridClock {
  private static final int LOGICAL_BITS = 16;

  private final LongSupplier millis;
  private final AtomicLong highest = new AtomicLong();

  /** A clock over {@code millis}, Unix milliseconds. */
  public HybridClock(LongSupplier millis) {
    this.millis = millis;
  }

  /** A stamp above all that were given or seen. */
  public long next() {
    long wall = millis.getAsLong() << LOGICAL_BITS;
    return highest.updateAndGet(seen -> Math.max(wall, seen + 1));
  }

  /** Takes note of another process's stamp. */
  public void observe(long stamp) {
    highest.accumulateAndGet(stamp, Math::max);
  }

  /** The wall time in a stamp, in Unix milliseconds. */
  public static long millisOf(long stamp) {
    return stamp >>> LOGICAL_BITS;
  }
}
