package io.pyspark.statestore.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.ExponentiallyDecayingReservoir;
import com.codahale.metrics.Gauge;
import com.codahale.metrics.Histogram;
import com.codahale.metrics.MetricRegistry;
import com.codahale.metrics.Timer;
import io.pyspark.statestore.balance.RebalanceRule;
import io.pyspark.statestore.heap.HeapSpillMonitor;
import io.pyspark.statestore.index.Totals;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.metrics.LogMetrics.Count;
import io.pyspark.statestore.sink.SinkMetrics;
import io.pyspark.statestore.tables.LocalCache;
import io.pyspark.statestore.tables.PartialFiles;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.ToLongFunction;

/**
 * Shows what the logs and the file sinks of this process do and hold, as Dropwizard metrics. The names are Flink's
 * where Flink's file merging has the same metric.
 *
 * <p>Counters, histogram and timers begin with the application, and so do the two gauges that count. The others add up
 * the checkpoints that the application works on in this process: those that it has refreshed or written to since it
 * began, and lately.
 */
final class FileMergingMetrics implements LogMetrics.Listener, SinkMetrics.Listener {
  private static final String PREFIX = "fileMerging.";
  private static final String SINK_PREFIX = PREFIX + "sink.";

  private final long beganNanos = System.nanoTime();
  private final Map<Count, Counter> counters = new EnumMap<>(Count.class);
  private final Histogram segmentsPerGroup = new Histogram(new ExponentiallyDecayingReservoir());
  private final Timer flushTime = new Timer();
  private final Timer commitWait = new Timer();
  private final Timer refreshTime = new Timer();
  private final Counter stagedFiles = new Counter();
  private final Counter stagedBytes = new Counter();
  private final Counter publishedFiles = new Counter();
  private final Counter publishedBytes = new Counter();

  /** The last batch of each sink. */
  private final Map<String, SinkMetrics.Batch> lastBatches = new ConcurrentHashMap<>();

  private final Timer publishTime = new Timer();

  private FileMergingMetrics() {}

  /** Registers the metrics and keeps them up to date until {@link #stop()}. */
  static FileMergingMetrics start(MetricRegistry registry) {
    FileMergingMetrics metrics = new FileMergingMetrics();
    metrics.register(registry);
    LogMetrics.listen(metrics);
    SinkMetrics.listen(metrics);
    return metrics;
  }

  void stop() {
    LogMetrics.stopListening(this);
    SinkMetrics.stopListening(this);
  }

  private void register(MetricRegistry registry) {
    gauge(registry, "logicalFileCount", () -> totals().liveSegments());
    gauge(registry, "logicalFileSize", () -> totals().liveBytes());
    gauge(registry, "physicalFileCount", () -> totals().files());
    gauge(registry, "physicalFileSize", () -> totals().physicalBytes());
    gauge(registry, "spaceAmplification", () -> totals().spaceAmplification());
    gauge(registry, "missingBytes", PartialFiles::missingInAll);
    gauge(registry, "localBytes", () -> LocalCache.ofProcess().used());
    gauge(registry, "localOwnBytes", () -> LocalCache.ofProcess().own());
    sinceTheBegin(registry, "givenBackBytes", () -> LocalCache.ofProcess().givenBack());
    gauge(registry, "heapSpilledBytes", HeapSpillMonitor::spilledBytes);
    gauge(registry, "heapSpillFileBytes", HeapSpillMonitor::fileBytes);
    sinceTheBegin(registry, "rebalancedPartitions", RebalanceRule::movedPartitions);
    for (Count what : Count.values()) {
      counters.put(what, registry.register(PREFIX + name(what), new Counter()));
    }
    registry.register(PREFIX + "segmentsPerGroup", segmentsPerGroup);
    registry.register(PREFIX + "flushTime", flushTime);
    registry.register(PREFIX + "commitWait", commitWait);
    registry.register(PREFIX + "refreshTime", refreshTime);
    registry.register(SINK_PREFIX + "stagedFiles", stagedFiles);
    registry.register(SINK_PREFIX + "stagedBytes", stagedBytes);
    registry.register(SINK_PREFIX + "publishedFiles", publishedFiles);
    registry.register(SINK_PREFIX + "publishedBytes", publishedBytes);
    gauge(registry, "sink.waitingFiles", () -> sumOfSinks(SinkMetrics.Batch::waitingFiles));
    gauge(registry, "sink.waitingBytes", () -> sumOfSinks(SinkMetrics.Batch::waitingBytes));
    registry.register(SINK_PREFIX + "publishTime", publishTime);
  }

  private static void gauge(MetricRegistry registry, String name, Gauge<Number> gauge) {
    registry.register(PREFIX + name, gauge);
  }

  /** Shows what the process has counted since this application began: there may have been others in it. */
  private static void sinceTheBegin(MetricRegistry registry, String name, LongSupplier ofProcess) {
    long before = ofProcess.getAsLong();
    gauge(registry, name, () -> ofProcess.getAsLong() - before);
  }

  private static String name(Count what) {
    return switch (what) {
      case GROUPS -> "groupCommits";
      case SEGMENTS -> "writtenSegments";
      default -> what.key();
    };
  }

  private Totals totals() {
    Totals sum = Totals.NOTHING;
    for (MergedLog log : MergedLogs.all().values()) {
      if (isInUse(log)) {
        sum = sum.plus(log.index().totals());
      }
    }
    return sum;
  }

  /**
   * Whether a log's view is up to date and shows the whole checkpoint. A log stays open when its query ends or moves
   * away, and is not refreshed then. One that an index service serves knows its own partitions only.
   */
  private boolean isInUse(MergedLog log) {
    if (log.isServed()) {
      return false;
    }
    long lastUsedNanos = log.metrics().lastUsedNanos();
    long idleMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - lastUsedNanos);
    return lastUsedNanos - beganNanos >= 0 && idleMs < log.options().closedAfterMs();
  }

  @Override
  public void counted(Count what, long by) {
    counters.get(what).inc(by);
  }

  @Override
  public void flushed(int segments, long nanos) {
    segmentsPerGroup.update(segments);
    flushTime.update(nanos, TimeUnit.NANOSECONDS);
  }

  @Override
  public void committed(long waitedNanos) {
    commitWait.update(waitedNanos, TimeUnit.NANOSECONDS);
  }

  private long sumOfSinks(ToLongFunction<SinkMetrics.Batch> figure) {
    return lastBatches.values().stream().mapToLong(figure).sum();
  }

  @Override
  public void published(SinkMetrics.Batch batch) {
    stagedFiles.inc(batch.stagedFiles());
    stagedBytes.inc(batch.stagedBytes());
    publishedFiles.inc(batch.publishedFiles());
    publishedBytes.inc(batch.publishedBytes());
    lastBatches.put(batch.sink(), batch);
    publishTime.update(batch.nanos(), TimeUnit.NANOSECONDS);
  }

  @Override
  public void refreshed(long nanos) {
    refreshTime.update(nanos, TimeUnit.NANOSECONDS);
  }
}
