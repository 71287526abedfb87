package io.pyspark.statestore.metrics;

import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The one listener of some metrics of this process. It hears what happens in the thread that does it, and metrics must
 * not fail a commit: a listener that fails is told nothing more.
 *
 * @param <L> what the listener can hear
 */
public final class MetricsListener<L> {
  private static final Logger LOG = LoggerFactory.getLogger(MetricsListener.class);

  private final String metrics;
  private final AtomicReference<L> listener = new AtomicReference<>();

  /**
   * @param metrics what they are called in the log
   */
  public MetricsListener(String metrics) {
    this.metrics = metrics;
  }

  /** Tells a listener from now on. It replaces the listener before it. */
  public void set(L newListener) {
    listener.set(newListener);
  }

  /** Stops telling a listener. */
  public void remove(L oldListener) {
    listener.compareAndSet(oldListener, null);
  }

  /** Tells the listener, if there is one. */
  public void tell(Consumer<L> news) {
    L told = listener.get();
    if (told != null) {
      try {
        news.accept(told);
      } catch (RuntimeException | LinkageError e) {
        remove(told);
        LOG.warn(
            "The metrics listener failed; {} metrics are no longer updated. What to do: report it with this"
                + " stack trace",
            metrics,
            e);
      }
    }
  }
}
