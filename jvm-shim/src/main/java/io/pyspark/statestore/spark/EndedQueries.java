package io.pyspark.statestore.spark;

import io.pyspark.statestore.fs.ActiveRuns;
import io.pyspark.statestore.fs.RunEnds;
import java.lang.ref.WeakReference;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the driver heard of the runs of its queries: up to which batch each has come, and when it ended. Python asks for
 * it where a command needs a stopped query, and counts a run as ended only if its end was heard. Spark may drop events;
 * then less is known, and the command waits. Other processes read what {@link RunEnds} leaves in the checkpoint.
 */
public final class EndedQueries extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger(EndedQueries.class);
  private static final int KEPT = 1000;

  /** Spark's listeners hear of an end a moment after everybody else. */
  private static final long PATIENCE_MS = 5_000;

  private static final Map<UUID, Run> RUNS =
      new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<UUID, Run> eldest) {
          return size() > KEPT;
        }
      };

  private static WeakReference<SparkContext> heard = new WeakReference<>(null);

  private EndedQueries() {}

  /** Begins to listen to an application, once. Without it commands only wait longer, so no exception leaves this. */
  static void listen(SparkContext context) {
    RunEnds.listen(context);
    synchronized (RUNS) {
      if (heard.get() == context) {
        return;
      }
      heard = new WeakReference<>(context);
    }
    try {
      context.addSparkListener(new EndedQueries());
    } catch (RuntimeException | LinkageError e) {
      LOG.warn(
          "Ends of queries are not heard of, so commands that need a stopped query wait for closedAfter. What to do:"
              + " wait, or say --force where you know that nobody runs the query",
          e);
    }
  }

  /**
   * Returns the runs of a query, the oldest first, once the ends that are on their way have been heard.
   *
   * @param id the query's id; the caller knows that none of its runs is active
   * @return a line for each run: its last batch or -1, when it ended in milliseconds or 0, and its checkpoint
   */
  public static String runsOf(String id) throws InterruptedException {
    UUID query;
    try {
      query = UUID.fromString(id);
    } catch (IllegalArgumentException e) {
      return "";
    }
    Set<UUID> going = goingRuns(query);
    long until = System.nanoTime() + PATIENCE_MS * 1_000_000;
    synchronized (RUNS) {
      long left = PATIENCE_MS;
      while (left > 0 && unended(query).anyMatch(run -> !going.contains(run))) {
        RUNS.wait(left);
        left = (until - System.nanoTime()) / 1_000_000;
      }
      StringBuilder lines = new StringBuilder();
      for (Run run : RUNS.values()) {
        if (run.query.equals(query) && run.checkpoint != null) {
          lines.append(run.lastBatch).append(' ').append(run.endedAt).append(' ').append(run.checkpoint).append('\n');
        }
      }
      return lines.toString();
    }
  }

  /** Runs that Spark counts as active, of which no end is on its way: those of another copy of the checkpoint. */
  private static Set<UUID> goingRuns(UUID query) {
    List<UUID> unended;
    synchronized (RUNS) {
      unended = unended(query).toList();
    }
    return unended.stream().filter(run -> ActiveRuns.find(query, run) != null).collect(Collectors.toSet());
  }

  /** The caller holds the lock. */
  private static Stream<UUID> unended(UUID query) {
    return RUNS.entrySet().stream()
        .filter(known -> known.getValue().query.equals(query) && known.getValue().endedAt == 0)
        .map(Map.Entry::getKey);
  }

  /** The names of the files by which runs of this process say that they go on, each in a line. */
  public static String filesOfRuns() {
    return String.join("\n", RunEnds.filesOfRuns());
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof StreamingQueryListener.QueryStartedEvent started) {
      run(started.id(), started.runId());
    } else if (event instanceof StreamingQueryListener.QueryProgressEvent progressed) {
      StreamingQueryProgress progress = progressed.progress();
      Run run = run(progress.id(), progress.runId());
      synchronized (RUNS) {
        // A trigger that found no data reports the next batch.
        run.lastBatch = progress.batchId() - (progress.durationMs().containsKey("addBatch") ? 0 : 1);
      }
    } else if (event instanceof StreamingQueryListener.QueryTerminatedEvent ended) {
      Run run = run(ended.id(), ended.runId());
      synchronized (RUNS) {
        run.endedAt = System.currentTimeMillis();
        RUNS.notifyAll();
      }
    }
  }

  private static Run run(UUID query, UUID runId) {
    synchronized (RUNS) {
      Run known = RUNS.get(runId);
      if (known != null && known.checkpoint != null) {
        return known;
      }
    }
    ActiveRuns active = ActiveRuns.find(query, runId);
    String checkpoint = active == null ? null : active.checkpoint();
    synchronized (RUNS) {
      Run run = RUNS.computeIfAbsent(runId, ignored -> new Run(query));
      run.checkpoint = checkpoint;
      return run;
    }
  }

  private static final class Run {
    final UUID query;
    String checkpoint;
    long lastBatch = -1;
    long endedAt;

    Run(UUID query) {
      this.query = query;
    }
  }
}
