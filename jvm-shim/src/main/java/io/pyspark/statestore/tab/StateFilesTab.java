package io.pyspark.statestore.tab;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * The tab "State files" of an application's pages: what the driver knows of the checkpoints, and what executors tell.
 * Whatever goes wrong here is said on the page or in the log; nothing else notices.
 */
public final class StateFilesTab extends SparkUITab implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(StateFilesTab.class);

  private static final String METRICS = "fileMerging.application.";

  private final StateFilesHistory history = new StateFilesHistory();
  private final ProcessFigures own;
  private final boolean hasQueries;

  private StateFilesTab(SparkUI ui, boolean hasQueries) {
    super(ui, "state-files");
    this.hasQueries = hasQueries;
    attachPage(new StateFilesPage(this, this::html));
    ui.attachTab(this);
    own = new ProcessFigures(this::tell);
  }

  /** Shows the tab in the pages of an application; returns null where it has none, or they take no tab. */
  public static StateFilesTab attach(SparkContext context) {
    try {
      Option<SparkUI> ui = context.ui();
      boolean hasQueries = context.getConf().getBoolean("spark.sql.streaming.ui.enabled", true);
      return ui.isDefined() ? new StateFilesTab(ui.get(), hasQueries) : null;
    } catch (RuntimeException | LinkageError e) {
      LOG.warn(
          "There is no tab 'State files'; nothing else is affected. What to do: with Spark 3.5, use the one of"
              + " Scala 2.12; otherwise report it with this stack trace",
          e);
      return null;
    }
  }

  /** Shows what all processes have told as metrics of the driver: nobody has to collect those of executors. */
  public void register(MetricRegistry registry) {
    try {
      for (Figure figure : Figure.values()) {
        if (figure.isSum()) {
          registry.register(METRICS + figure.metric(), (Gauge<Long>) () -> history.sum(figure));
        }
      }
    } catch (RuntimeException | LinkageError e) {
      LOG.warn(
          "There are no metrics of the whole application; nothing else is affected. What to do: report it with"
              + " this stack trace",
          e);
    }
  }

  /** What the tab is called. */
  @Override
  public String name() {
    return "State files";
  }

  private void tell(Map<String, long[]> news) {
    long now = System.currentTimeMillis();
    history.add(news, now);
    history.sample(now);
  }

  /** An executor tells what it has done. */
  public void receive(Object message) {
    if (message instanceof HashMap<?, ?> map) {
      Map<String, long[]> news = new HashMap<>();
      map.forEach(
          (key, value) -> {
            if (key instanceof String checkpoint && value instanceof long[] figures && figures.length == Figure.COUNT) {
              news.put(checkpoint, figures);
            }
          });
      history.add(news, System.currentTimeMillis());
    }
  }

  /**
   * What is below the tab.
   *
   * @param chosen the number of the checkpoint of which to show all; may be null, or no number
   */
  private String html(String chosen) {
    try {
      return new StateFilesHtml(history.view(System.currentTimeMillis()), hasQueries).page(chosen);
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("The page of the tab 'State files' could not be made. What to do: report it with this stack trace", e);
      return "<p>This page could not be made: " + Shown.text(e.toString()) + "</p>";
    }
  }

  @Override
  public void close() {
    own.close();
  }
}
