package io.pyspark.statestore.tab;

import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.index.Totals;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import io.pyspark.statestore.metrics.LogMetrics;
import java.io.IOException;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the logs of this process have done, told every few seconds: an executor sends it to the driver, where flushes
 * happen in other processes. Nothing is told of what was done before the application began in this process.
 */
public final class ProcessFigures implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(ProcessFigures.class);
  private static final long INTERVAL_MS = 5_000;

  /** Takes the news: {@link Figure}s by checkpoint. They are classes of the JDK, which any class loader can read. */
  public interface Listener {
    void tell(HashMap<String, long[]> news) throws IOException;
  }

  private record Known(long[] figures, long lastUsedNanos) {}

  private final Map<MergedLog, Known> known = new HashMap<>();
  private final Listener listener;
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(Threads.daemons("state-files-figures"));
  private boolean failed;

  /** Begins to tell a listener, in a thread of its own. */
  public ProcessFigures(Listener listener) {
    this.listener = listener;
    news();
    timer.scheduleWithFixedDelay(this::tell, INTERVAL_MS, INTERVAL_MS, TimeUnit.MILLISECONDS);
  }

  /** Tells what is left, if the listener still takes it. */
  @Override
  public void close() {
    timer.shutdown();
    tell();
  }

  /** Never fails: a timer does not call again what has failed, and a process does not end well that fails to end. */
  private synchronized void tell() {
    try {
      HashMap<String, long[]> news = news();
      listener.tell(news);
      failed = false;
    } catch (IOException | RuntimeException | Error e) {
      boolean isFirst = !failed;
      failed = true;
      if (isFirst) {
        LOG.info("The tab 'State files' misses figures of this process: {}", e.toString());
      }
    }
  }

  private HashMap<String, long[]> news() {
    Collection<MergedLog> logs = MergedLogs.all().values();
    known.keySet().retainAll(logs);
    HashMap<String, long[]> news = new HashMap<>();
    for (MergedLog log : logs) {
      Known before = known.get(log);
      Known now = read(log, before);
      known.put(log, now);
      long[] change = now.figures().clone();
      if (before != null) {
        if (before.lastUsedNanos() == now.lastUsedNanos() && Arrays.equals(before.figures(), change)) {
          continue;
        }
        for (Figure figure : Figure.values()) {
          change[figure.ordinal()] -= figure.isSum() ? figure.of(before.figures()) : 0;
        }
      }
      news.put(log.checkpoint(), change);
    }
    return news;
  }

  private static Known read(MergedLog log, Known before) {
    // Before the rest: what comes in between is told again.
    long lastUsedNanos = log.metrics().lastUsedNanos();
    Map<String, Long> counts = log.metrics().snapshot();
    long[] figures = new long[Figure.COUNT];
    Arrays.fill(figures, Figure.UNKNOWN);
    for (Figure figure : Figure.values()) {
      if (figure.isSum()) {
        figures[figure.ordinal()] = counts.get(figure.key());
      }
    }
    if (!log.isServed()) {
      Totals totals = log.index().totals();
      set(figures, Figure.FILES, totals.files());
      set(figures, Figure.PHYSICAL_BYTES, totals.physicalBytes());
      set(figures, Figure.LIVE_FILES, totals.liveSegments());
      set(figures, Figure.LIVE_BYTES, totals.liveBytes());
      set(figures, Figure.SERVED, log.answersExecutors() ? 1 : 0);
      set(figures, Figure.MAX_AMPLIFICATION, Math.round(100 * log.options().maxSpaceAmplification()));
      set(figures, Figure.CLOSED_AFTER_MS, log.options().closedAfterMs());
      UUID run = run(log);
      if (run != null) {
        set(figures, Figure.RUN_ID_FIRST, run.getMostSignificantBits());
        set(figures, Figure.RUN_ID_LAST, run.getLeastSignificantBits());
      }
    }
    LogMetrics.Pass pass = log.metrics().lastPass();
    if (pass != null) {
      set(figures, Figure.PASS_ENDED_MS, pass.endedMs());
      set(figures, Figure.PASS_TOOK_MS, pass.tookMs());
      set(figures, Figure.PASS_STOPPED, pass.stopped() ? 1 : 0);
    }
    return new Known(figures, lastUsedNanos);
  }

  /** The last run of the log's query; null where no query has opened it, or Spark gives runs other names. */
  private static UUID run(MergedLog log) {
    String run = log.lastRun();
    try {
      return run == null ? null : UUID.fromString(run);
    } catch (IllegalArgumentException e) {
      return null;
    }
  }

  private static void set(long[] figures, Figure figure, long value) {
    figures[figure.ordinal()] = value;
  }
}
