package io.pyspark.statestore.log;

import io.pyspark.statestore.log.LogMetrics.Count;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What one round of maintenance did to a checkpoint, as one line of {@code [key=value]} pairs in the log. */
final class MaintenanceReport {
  private static final Logger LOG = LoggerFactory.getLogger(MaintenanceReport.class);
  /** All that only rounds of maintenance count, and only one runs at a time: the differences are this round's. */
  private static final List<Count> OF_A_PASS = List.of(
      Count.UNLINKED_FILES,
      Count.FAILED_DELETES,
      Count.RELOCATED_SEGMENTS,
      Count.RELOCATED_BYTES,
      Count.CARRIED_OVER_TOMBSTONES);

  private final LogContext context;
  private final long beganNanos = System.nanoTime();
  private final Map<Count, Long> before = new EnumMap<>(Count.class);
  private boolean stopped;

  private MaintenanceReport(LogContext context) {
    this.context = context;
    OF_A_PASS.forEach(what -> before.put(what, context.metrics().count(what)));
  }

  /** A round begins. */
  static MaintenanceReport begin(LogContext context) {
    return new MaintenanceReport(context);
  }

  /** The round was given up before its end; why is in the log already. */
  void stopped() {
    stopped = true;
  }

  /** The round is over: one line, at INFO where it did anything, else at DEBUG. */
  void end() {
    if (stopped || OF_A_PASS.stream().anyMatch(what -> done(what) != 0)) {
      LOG.info(text());
    } else if (LOG.isDebugEnabled()) {
      LOG.debug(text());
    }
  }

  private long done(Count what) {
    return context.metrics().count(what) - before.get(what);
  }

  private String text() {
    StringBuilder line = new StringBuilder("[checkpoint=").append(context.checkpoint()).append(']');
    OF_A_PASS.forEach(what -> add(line, what.key(), done(what)));
    Index.Totals now = context.index().totals();
    add(line, "files", now.files());
    add(line, "physicalBytes", now.physicalBytes());
    add(line, "liveSegments", now.liveSegments());
    add(line, "liveBytes", now.liveBytes());
    add(line, "spaceAmplification",
        now.liveBytes() == 0 ? "none" : String.format(Locale.ROOT, "%.2f", now.spaceAmplification()));
    add(line, "tookMs", (System.nanoTime() - beganNanos) / 1_000_000);
    add(line, "stopped", stopped);
    return line.toString();
  }

  private static void add(StringBuilder line, String key, Object value) {
    line.append(" [").append(key).append('=').append(value).append(']');
  }
}
