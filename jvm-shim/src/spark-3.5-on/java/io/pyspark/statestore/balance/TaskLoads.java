package io.pyspark.statestore.balance;

import io.pyspark.statestore.fs.SparkQuery;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.apache.spark.Success$;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import scala.collection.Iterator;

/**
 * How long the tasks of each batch took, and how many rows their stores had after it. Spark tells it when it has time;
 * what has not been told is missing, and nothing waits for it.
 */
final class TaskLoads extends SparkListener {
  /** Of Spark's metric of stateful operators, by which their stages are known. */
  private static final String ROWS = "number of total state rows";

  private static final int KEPT = 4;

  /** A stage of a batch. */
  static final class StageLoad {
    private final boolean[] seen;
    final long[] millis;
    final long[] rows;
    private boolean hasState;
    private boolean isComplete;

    private StageLoad(int tasks) {
      seen = new boolean[tasks];
      millis = new long[tasks];
      rows = new long[tasks];
    }

    /** How many partitions it has. */
    int partitions() {
      return seen.length;
    }

    /** Whether the task of a partition was heard of. */
    boolean knows(int partition) {
      return seen[partition];
    }
  }

  /** By run and batch, its stages by their ids. */
  private final Map<String, LinkedHashMap<Long, TreeMap<Integer, StageLoad>>> runs = new HashMap<>();

  private final Map<Integer, StageLoad> stages = new HashMap<>();
  private final Consumer<String> whenEnded;

  /** Tells when a run has ended that it listens for. */
  TaskLoads(Consumer<String> whenEnded) {
    this.whenEnded = whenEnded;
  }

  /** Listens for a run from now on. */
  synchronized void listenFor(String run) {
    runs.computeIfAbsent(run, ignored -> new LinkedHashMap<>());
  }

  /** The stages with state of each batch that is known whole, by the batch, and forgets them. */
  synchronized Map<Long, List<StageLoad>> take(String run) {
    Map<Long, List<StageLoad>> taken = new TreeMap<>();
    runs.getOrDefault(run, new LinkedHashMap<>())
        .entrySet()
        .removeIf(
            batch -> {
              boolean isWhole = batch.getValue().values().stream().allMatch(each -> each.isComplete);
              if (isWhole) {
                List<StageLoad> found = new ArrayList<>(batch.getValue().values());
                found.removeIf(each -> !each.hasState);
                taken.put(batch.getKey(), found);
              }
              return isWhole;
            });
    return taken;
  }

  @Override
  public synchronized void onStageSubmitted(SparkListenerStageSubmitted event) {
    Properties properties = event.properties();
    Map<Long, TreeMap<Integer, StageLoad>> batches = runs.get(SparkQuery.runOf(properties));
    if (batches == null) {
      return;
    }
    StageLoad load = new StageLoad(event.stageInfo().numTasks());
    int id = event.stageInfo().stageId();
    // A stage whose tasks are tried again counts anew.
    stages.put(id, load);
    batches.computeIfAbsent(SparkQuery.batchOf(properties), batch -> new TreeMap<>()).put(id, load);
    while (batches.size() > KEPT) {
      batches.remove(batches.keySet().iterator().next());
    }
  }

  @Override
  public synchronized void onStageCompleted(SparkListenerStageCompleted event) {
    StageLoad load = stages.remove(event.stageInfo().stageId());
    if (load != null) {
      load.isComplete = true;
    }
  }

  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
    StageLoad load = stages.get(event.stageId());
    int partition = event.taskInfo().partitionId();
    boolean isKnown = load != null && partition < load.partitions() && event.taskMetrics() != null;
    if (!isKnown || event.reason() != Success$.MODULE$) {
      return;
    }
    load.seen[partition] = true;
    load.millis[partition] = event.taskMetrics().executorRunTime();
    long rows = 0;
    Iterator<AccumulableInfo> all = event.taskInfo().accumulables().iterator();
    while (all.hasNext()) {
      AccumulableInfo each = all.next();
      if (each.name().isDefined() && each.name().get().equals(ROWS)) {
        load.hasState = true;
        rows += each.update().isDefined() && each.update().get() instanceof Number number ? number.longValue() : 0;
      }
    }
    load.rows[partition] = rows;
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof StreamingQueryListener.QueryTerminatedEvent ended) {
      String run = ended.runId().toString();
      synchronized (this) {
        runs.remove(run);
      }
      whenEnded.accept(run);
    }
  }
}
