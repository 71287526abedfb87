package io.pyspark.statestore.tab;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What processes have told of checkpoints since the application began, for {@link StateFilesTab}. It is bounded: of
 * each checkpoint it keeps so many samples, ever further apart, and of so many checkpoints those that changed last.
 *
 * <p>It has no way to the logs, so whoever looks at it, however often, keeps no commit waiting.
 */
final class StateFilesHistory {
  private static final int MAX_CHECKPOINTS = 500;
  private static final int MAX_SAMPLES = 240;

  private final Map<String, Series> byCheckpoint = new HashMap<>();

  /** Of all checkpoints that there were. */
  private final long[] sums = new long[Figure.COUNT];

  private int opened;
  private boolean dropped;

  /** What there was of a checkpoint at some time; bytes and files may be unknown. */
  record Sample(long atMs, long files, long physicalBytes, long liveBytes, long groups, long writeNanos) {
    private boolean isAs(Sample other) {
      return equals(
          new Sample(atMs, other.files, other.physicalBytes, other.liveBytes, other.groups, other.writeNanos));
    }
  }

  /**
   * A checkpoint at present.
   *
   * @param number names it in links
   * @param changedMs when a process told of it last
   * @param grewMs when each sum grew last; 0 for never
   */
  record Row(int number, String checkpoint, long[] figures, long changedMs, long[] grewMs, List<Sample> samples) {
    long of(Figure figure) {
      return figure.of(figures);
    }

    /** When a sum grew last; 0 for never. */
    long grewMs(Figure sum) {
      return sum.of(grewMs);
    }
  }

  /** All that a page shows. {@code more} is whether there were checkpoints besides. */
  record View(long atMs, List<Row> rows, boolean more) {}

  private static final class Series {
    private final int number;
    private final long[] figures = new long[Figure.COUNT];
    private final long[] grewMs = new long[Figure.COUNT];
    private final List<Sample> samples = new ArrayList<>();
    private long changedMs;
    private long everyMs;

    Series(int number) {
      this.number = number;
      for (Figure figure : Figure.values()) {
        figures[figure.ordinal()] = figure.isSum() ? 0 : Figure.UNKNOWN;
      }
    }

    void add(long[] change, long nowMs) {
      for (Figure figure : Figure.values()) {
        long told = figure.of(change);
        if (figure.isSum()) {
          figures[figure.ordinal()] += told;
          grewMs[figure.ordinal()] = told > 0 ? nowMs : figure.of(grewMs);
        } else if (told != Figure.UNKNOWN) {
          figures[figure.ordinal()] = told;
        }
      }
      changedMs = nowMs;
    }

    /** Keeps a sample if anything in it has changed. If there are too many, every second one goes, but for the last. */
    void sample(long nowMs) {
      Sample last = samples.isEmpty() ? null : samples.get(samples.size() - 1);
      Sample now = now(nowMs);
      if (last != null && (nowMs - last.atMs() < everyMs || now.isAs(last))) {
        return;
      }
      samples.add(now);
      if (samples.size() > MAX_SAMPLES) {
        for (int i = samples.size() - 2; i > 0; i -= 2) {
          samples.remove(i);
        }
        everyMs = Math.max(2 * everyMs, 2 * (nowMs - samples.get(0).atMs()) / MAX_SAMPLES);
      }
    }

    private Sample now(long nowMs) {
      return new Sample(
          nowMs,
          Figure.FILES.of(figures),
          Figure.PHYSICAL_BYTES.of(figures),
          Figure.LIVE_BYTES.of(figures),
          Figure.GROUPS.of(figures),
          Figure.WRITE_NANOS.of(figures));
    }
  }

  /** A process tells what has changed. */
  synchronized void add(Map<String, long[]> news, long nowMs) {
    news.forEach(
        (checkpoint, change) -> {
          for (Figure figure : Figure.values()) {
            sums[figure.ordinal()] += figure.isSum() ? figure.of(change) : 0;
          }
          byCheckpoint.computeIfAbsent(checkpoint, name -> new Series(++opened)).add(change, nowMs);
        });
    while (byCheckpoint.size() > MAX_CHECKPOINTS) {
      byCheckpoint.values().stream()
          .min(Comparator.comparingLong(series -> series.changedMs))
          .ifPresent(byCheckpoint.values()::remove);
      dropped = true;
    }
  }

  /** Keeps a sample of each checkpoint. */
  synchronized void sample(long nowMs) {
    byCheckpoint.values().forEach(series -> series.sample(nowMs));
  }

  /** What all processes have told of a figure, of all checkpoints together. */
  synchronized long sum(Figure figure) {
    return figure.of(sums);
  }

  /** A copy of all there is, the largest checkpoints first. */
  synchronized View view(long nowMs) {
    List<Row> rows = new ArrayList<>();
    byCheckpoint.forEach(
        (checkpoint, series) ->
            rows.add(
                new Row(
                    series.number,
                    checkpoint,
                    series.figures.clone(),
                    series.changedMs,
                    series.grewMs.clone(),
                    List.copyOf(series.samples))));
    rows.sort(Comparator.<Row>comparingLong(row -> -row.of(Figure.PHYSICAL_BYTES)).thenComparing(Row::checkpoint));
    return new View(nowMs, rows, dropped);
  }
}
