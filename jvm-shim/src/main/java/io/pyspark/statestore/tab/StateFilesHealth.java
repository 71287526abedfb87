package io.pyspark.statestore.tab;

import io.pyspark.statestore.tab.StateFilesHistory.Row;
import io.pyspark.statestore.tab.StateFilesHistory.Sample;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * What is wrong with a checkpoint, as far as processes have told: for {@link StateFilesHtml}, which says it before it
 * shows any figure. It goes by what happened lately, so what has passed is not held against a query for ever.
 */
final class StateFilesHealth {
  /** What has failed is told for so long. */
  static final long LATELY_MS = 15 * 60_000;

  /** Bytes that are not live and not worth a word, whatever their share is; reports say so, too. */
  static final long LITTLE = 1 << 20;

  /** Groups that take longer than this on average keep tasks waiting. */
  private static final long SLOW_NANOS = 2_000_000_000;

  /** How urgent a finding is. The words are those of the page. */
  enum Level {
    GOOD("good"),
    LOOK("look into it"),
    ACT("do this");

    private final String words;

    Level(String words) {
      this.words = words;
    }

    String words() {
      return words;
    }
  }

  /**
   * Something that is wrong.
   *
   * @param title what, in a few words
   * @param why the figures that say so, and what to do
   * @param figure the name in {@link Shown} of the figure that is meant
   */
  record Finding(Level level, String title, String why, String figure) {}

  private StateFilesHealth() {}

  /** What is wrong with a checkpoint, the most urgent first; empty where nothing is. */
  static List<Finding> of(Row row, long nowMs) {
    List<Finding> found = new ArrayList<>();
    if (row.of(Figure.PASS_STOPPED) == 1) {
      found.add(
          new Finding(
              Level.ACT,
              "maintenance stopped",
              "The last cleaning pass stopped before its end. The log of the driver says"
                  + " why, and what to do. The next pass tries again.",
              Shown.MAINTENANCE));
    }
    addFailures(
        found,
        row,
        nowMs,
        Figure.FAILED_GROUPS,
        "writes fail",
        "Spark retries their tasks. Look at space, quotas and"
            + " permissions; the logs of the executors say PSS_WRITE_FAILED, and why.",
        Shown.FAILED_GROUPS);
    addFailures(
        found,
        row,
        nowMs,
        Figure.FAILED_DELETES,
        "deletes fail",
        "The files are kept, and deleted later. May the query"
            + " delete in _merged/? Is the file system read-only, or in safe mode?",
        Shown.FAILED_DELETES);
    long aboveMs = aboveSinceMs(row);
    if (aboveMs > 0 && nowMs - aboveMs > Math.max(0, row.of(Figure.CLOSED_AFTER_MS))) {
      String why =
          String.format(
              Locale.ROOT,
              "For %s, more than %.2f bytes are kept for each live one (maxSpaceAmplification). If nobody writes any"
                  + " more, compact the checkpoint. Else maintenance does not run, or fails: look at failed deletes,"
                  + " and at the log.",
              Shown.span(nowMs - aboveMs),
              row.of(Figure.MAX_AMPLIFICATION) / 100.0);
      found.add(new Finding(Level.LOOK, "dead bytes stay", why, Shown.AMPLIFICATION));
    }
    if (grewLately(row, Figure.HEAP_SPILL_READS, nowMs)) {
      String why =
          String.format(
              Locale.ROOT,
              "Rows of heap stores were read on the disk %,d times since the application began, the last time %s ago."
                  + " If batches take too long, give executors more memory, or convert the checkpoint to RocksDB, which"
                  + " is made for state that does not fit into memory.",
              row.of(Figure.HEAP_SPILL_READS),
              Shown.span(nowMs - row.grewMs(Figure.HEAP_SPILL_READS)));
      found.add(new Finding(Level.LOOK, "state is larger than the heap", why, Shown.SPILL_READS));
    }
    long flushNanos = meanFlushNanos(row, nowMs);
    if (flushNanos > SLOW_NANOS) {
      String why =
          String.format(
              Locale.ROOT,
              "A group took %.1f s to write and flush on average, in the last %s. The file system is slow.",
              flushNanos / 1e9,
              Shown.span(LATELY_MS));
      found.add(new Finding(Level.LOOK, "flushes are slow", why, Shown.FLUSH));
    }
    return found;
  }

  /** The level of the most urgent finding. */
  static Level level(List<Finding> found) {
    return found.isEmpty() ? Level.GOOD : found.get(0).level();
  }

  private static void addFailures(
      List<Finding> found, Row row, long nowMs, Figure figure, String title, String what, String name) {
    if (grewLately(row, figure, nowMs)) {
      String why =
          String.format(
              Locale.ROOT,
              "%,d failed since the application began, the last %s ago. %s",
              row.of(figure),
              Shown.span(nowMs - row.grewMs(figure)),
              what);
      found.add(new Finding(Level.LOOK, title, why, name));
    }
  }

  private static boolean grewLately(Row row, Figure figure, long nowMs) {
    return row.grewMs(figure) > 0 && nowMs - row.grewMs(figure) <= LATELY_MS;
  }

  /** Since when more is kept than the query allows; 0 where it is not. */
  private static long aboveSinceMs(Row row) {
    long sinceMs = 0;
    for (int i = row.samples().size() - 1; i >= 0 && isAbove(row, row.samples().get(i)); i--) {
      sinceMs = row.samples().get(i).atMs();
    }
    return sinceMs;
  }

  private static boolean isAbove(Row row, Sample sample) {
    long allowed = row.of(Figure.MAX_AMPLIFICATION);
    return allowed > 0
        && sample.physicalBytes() - sample.liveBytes() >= LITTLE
        && 100.0 * sample.physicalBytes() > (double) allowed * sample.liveBytes();
  }

  /** How long a group took on average, of those written lately; 0 without any. */
  private static long meanFlushNanos(Row row, long nowMs) {
    Sample before = null;
    for (Sample sample : row.samples()) {
      before = before == null || nowMs - sample.atMs() > LATELY_MS ? sample : before;
    }
    if (before == null) {
      return 0;
    }
    Sample last = row.samples().get(row.samples().size() - 1);
    long groups = last.groups() - before.groups();
    return groups <= 0 ? 0 : (last.writeNanos() - before.writeNanos()) / groups;
  }
}
