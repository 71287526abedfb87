package io.pyspark.statestore.log;

import java.util.function.LongSupplier;

/**
 * The two clocks of this process. The wall clock is for what others read: names and stamps. Durations are measured with
 * the one that never jumps, since a step of the wall clock would end them all at once.
 *
 * <p>Whoever waits for others, before he takes what they left for closed or given up, goes by the clock that says less;
 * whoever has to stop before others lose patience goes by the one that says more ({@link Stopwatch}).
 */
final class Clocks {
  private static final long START_NANOS = System.nanoTime();
  /** The machine's wall clock. */
  static volatile LongSupplier wall = System::currentTimeMillis;

  private Clocks() {}

  /** Wall time in Unix milliseconds; it may jump. */
  static long wallMs() {
    return wall.getAsLong();
  }

  /** Milliseconds, from 1 on, that only ever go on; on some systems they stand still while the machine sleeps. */
  static long monotonicMs() {
    return (System.nanoTime() - START_NANOS) / 1_000_000 + 1;
  }

  /**
   * What time it is for comparisons with stamps in files.
   *
   * @param wallMs wall time; where the wall clock has been put forward, the time that it would show otherwise
   * @param monotonicMs see {@link Clocks#monotonicMs}
   */
  record Moment(long wallMs, long monotonicMs) {}

  /** Tells moments of one log, to which a step of the wall clock forward is no time that has passed. */
  static final class Watch {
    private final long begunWallMs = wallMs();
    private final long begunMs = monotonicMs();

    Moment now() {
      long now = monotonicMs();
      return new Moment(Math.min(wallMs(), begunWallMs + now - begunMs), now);
    }
  }

  /**
   * How long something has taken at most: by the clock that says more. The monotonic one may stand still while the machine
   * sleeps; the other one may have been put forward, which only ends something early.
   */
  static final class Stopwatch {
    private final long begunMs = monotonicMs();
    private final long begunWallMs = wallMs();

    long elapsedMs() {
      return Math.max(monotonicMs() - begunMs, wallMs() - begunWallMs);
    }
  }
}
