package io.pyspark.statestore.clean;

import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.Totals;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.metrics.LogMetrics.Count;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Logs what one cleaning pass did to a checkpoint, as one line of {@code [key=value]} pairs. */
final class MaintenanceReport {
  private static final Logger LOG = LoggerFactory.getLogger(MaintenanceReport.class);

  /** Only passes count these, and only one runs at a time, so the differences are this pass's. */
  private static final List<Count> OF_A_PASS =
      List.of(
          Count.UNLINKED_FILES,
          Count.FAILED_DELETES,
          Count.RELOCATED_SEGMENTS,
          Count.RELOCATED_BYTES,
          Count.CARRIED_OVER_TOMBSTONES);

  private final String checkpoint;
  private final Index index;
  private final LogMetrics metrics;
  private final long beganNanos = System.nanoTime();
  private final Map<Count, Long> before = new EnumMap<>(Count.class);
  private boolean stopped;

  /** A pass begins. */
  MaintenanceReport(String checkpoint, Index index, LogMetrics metrics) {
    this.checkpoint = checkpoint;
    this.index = index;
    this.metrics = metrics;
    OF_A_PASS.forEach(what -> before.put(what, metrics.count(what)));
  }

  /** The pass stopped before its end; the log has the reason already. */
  void stopped() {
    stopped = true;
  }

  /** The pass is over. Logs at INFO if it did anything or stopped, else at DEBUG. */
  void end() {
    metrics.cleaned(new LogMetrics.Pass(System.currentTimeMillis(), tookMs(), stopped));
    if (stopped || OF_A_PASS.stream().anyMatch(what -> done(what) != 0)) {
      LOG.info(text());
    } else if (LOG.isDebugEnabled()) {
      LOG.debug(text());
    }
  }

  private long done(Count what) {
    return metrics.count(what) - before.get(what);
  }

  private long tookMs() {
    return (System.nanoTime() - beganNanos) / 1_000_000;
  }

  private String text() {
    StringBuilder line = new StringBuilder("[checkpoint=").append(checkpoint).append(']');
    OF_A_PASS.forEach(what -> add(line, what.key(), done(what)));
    Totals now = index.totals();
    add(line, "files", now.files());
    add(line, "physicalBytes", now.physicalBytes());
    add(line, "liveSegments", now.liveSegments());
    add(line, "liveBytes", now.liveBytes());
    add(
        line,
        "spaceAmplification",
        now.liveBytes() == 0 ? "none" : String.format(Locale.ROOT, "%.2f", now.spaceAmplification()));
    add(line, "tookMs", tookMs());
    add(line, "stopped", stopped);
    return line.toString();
  }

  private static void add(StringBuilder line, String key, Object value) {
    line.append(" [").append(key).append('=').append(value).append(']');
  }
}
