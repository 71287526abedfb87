package io.pyspark.statestore.index;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/**
 * Gives stamps that never go back, are close to wall time, and are above every stamp that was seen: {@code max(unix_ms
 * << 16, highest seen + 1)}. So a process's stamps are above those that it has read, however its wall clock runs (rule
 * 3).
 */
public final class HybridClock {
  private static final int LOGICAL_BITS = 16;

  private final LongSupplier millis;
  private final AtomicLong highest = new AtomicLong();

  /** Makes a clock over {@code millis}, wall time in Unix milliseconds. */
  public HybridClock(LongSupplier millis) {
    this.millis = millis;
  }

  /** Gives a stamp above all that were given or seen. */
  public long next() {
    long wall = millis.getAsLong() << LOGICAL_BITS;
    return highest.updateAndGet(seen -> Math.max(wall, seen + 1));
  }

  /** Takes note of another process's stamp. */
  public void observe(long stamp) {
    highest.accumulateAndGet(stamp, Math::max);
  }

  /** The highest stamp that was given or seen. */
  public long newest() {
    return highest.get();
  }

  /** The wall time in a stamp, in Unix milliseconds. */
  public static long millisOf(long stamp) {
    return stamp >>> LOGICAL_BITS;
  }
}
