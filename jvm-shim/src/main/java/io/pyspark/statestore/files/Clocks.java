package io.pyspark.statestore.files;

import java.util.function.LongSupplier;

/**
 * The two clocks of this process. The wall clock is for names and stamps, which others read. Durations are measured
 * with the clock that never jumps, because a step of the wall clock would end them all at once.
 *
 * <p>A process that waits before it counts others' files as closed, or their markers as expired, goes by the clock that
 * says less. A process that has to stop before others lose patience goes by the clock that says more ({@link
 * Stopwatch}).
 */
public final class Clocks {
  private static final long START_NANOS = System.nanoTime();

  /** The wall clock of this process. */
  static volatile LongSupplier wall = System::currentTimeMillis;

  private Clocks() {}

  /** Wall time in Unix milliseconds; it may jump. */
  public static long wallMs() {
    return wall.getAsLong();
  }

  /** Milliseconds, from 1 on, that never go back. On some systems they stand still while the machine sleeps. */
  public static long monotonicMs() {
    return (System.nanoTime() - START_NANOS) / 1_000_000 + 1;
  }

  /**
   * A time that can be compared with stamps in files.
   *
   * @param wallMs wall time, without steps forward that the wall clock has made
   * @param monotonicMs see {@link Clocks#monotonicMs}
   */
  public record Moment(long wallMs, long monotonicMs) {}

  /** Tells the time for one log. A step forward of the wall clock does not count as time that has passed. */
  public static final class Watch {
    private final long begunWallMs = wallMs();
    private final long begunMs = monotonicMs();

    public Moment now() {
      long now = monotonicMs();
      return new Moment(Math.min(wallMs(), begunWallMs + now - begunMs), now);
    }
  }

  /**
   * Measures how long something has taken at most, by the clock that says more. The monotonic one may stand still while
   * the machine sleeps. The wall clock may have been put forward, which only ends something early.
   */
  public static final class Stopwatch {
    private final long begunMs = monotonicMs();
    private final long begunWallMs = wallMs();

    public long elapsedMs() {
      return Math.max(monotonicMs() - begunMs, wallMs() - begunWallMs);
    }
  }
}
