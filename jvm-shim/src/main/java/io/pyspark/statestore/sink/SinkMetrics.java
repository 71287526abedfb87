package io.pyspark.statestore.sink;

import io.pyspark.statestore.metrics.MetricsListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells what file sinks do: a line in the log for each batch, and a listener. Spark's progress of a query has no place
 * for it: only a sink's own class is asked for metrics, and Spark's file sink has none.
 */
public final class SinkMetrics {
  private static final Logger LOG = LoggerFactory.getLogger(SinkMetrics.class);
  private static final MetricsListener<Listener> LISTENER = new MetricsListener<>("fileSink");

  private SinkMetrics() {}

  /** What became of one batch. */
  public record Batch(
      String sink,
      String batch,
      int stagedFiles,
      long stagedBytes,
      int publishedFiles,
      long publishedBytes,
      int waitingFiles,
      long waitingBytes,
      long nanos) {}

  /** Hears of each batch. */
  public interface Listener {
    /** A batch is committed. */
    void published(Batch batch);
  }

  /** Tells a listener of all batches from now on. It replaces the listener before it. */
  public static void listen(Listener listener) {
    LISTENER.set(listener);
  }

  /** Stops telling a listener. */
  public static void stopListening(Listener listener) {
    LISTENER.remove(listener);
  }

  static void committed(Batch batch) {
    LOG.info(
        "[sink={}] [batch={}] [stagedFiles={}] [stagedBytes={}] [publishedFiles={}] [publishedBytes={}]"
            + " [waitingFiles={}] [waitingBytes={}] [tookMs={}]",
        batch.sink(),
        batch.batch(),
        batch.stagedFiles(),
        batch.stagedBytes(),
        batch.publishedFiles(),
        batch.publishedBytes(),
        batch.waitingFiles(),
        batch.waitingBytes(),
        batch.nanos() / 1_000_000);
    LISTENER.tell(listener -> listener.published(batch));
  }
}
