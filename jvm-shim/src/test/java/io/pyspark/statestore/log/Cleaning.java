package io.pyspark.statestore.log;

import io.pyspark.statestore.clean.Cleaner;
import java.util.function.BooleanSupplier;

/** Lets a test say when cleaning passes come in this process. */
public final class Cleaning {
  private Cleaning() {}

  /** From now on only {@link MergedLog#clean} makes a pass. */
  public static void byHand() {
    Cleaner.Pace.current = new ByHand();
  }

  /** From now on passes come by themselves, as in production. */
  public static void byItself() {
    Cleaner.Pace.current = new Cleaner.Pace();
  }

  /** From now on logs that nobody uses are forgotten so long after others' files count as closed. */
  public static void keepsLogsFor(long ms) {
    MergedLog.keepCleaningMs = ms;
  }

  /** From now on the passes of a log write index-only files, as those of the process that cleans for all. */
  public static void consolidates(MergedLog log) {
    log.cleaner().consolidates(true);
  }

  /** From now on the passes of a log join small files. */
  public static void joinsSmallFiles(MergedLog log) {
    log.cleaner().joinsSmallFiles(true);
  }

  /** From now on the passes of a log are those of the only process that cleans. */
  public static void cleansForAll(MergedLog log) {
    log.cleaner().cleansForAll(60_000);
  }

  private static final class ByHand extends Cleaner.Pace {
    @Override
    public boolean isDue(long sinceLastMs, long intervalMs, BooleanSupplier isPressing) {
      return false;
    }

    @Override
    public boolean holdsDeletionsBack(boolean passIsNear) {
      return false;
    }
  }
}
