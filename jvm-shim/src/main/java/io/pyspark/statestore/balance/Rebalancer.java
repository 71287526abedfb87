package io.pyspark.statestore.balance;

import io.pyspark.statestore.fs.SparkQuery;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Says before a batch of a run where its partitions are to be, when executors have come or gone, or some have more to
 * do than others.
 *
 * <p>A partition weighs by a third what each partition does, by a third as much as its task takes, and by a third as
 * many rows as its stores have, compared with the mean of its stage. All stores that a task uses move together. A move
 * is a wish: a task that runs elsewhere loads its stores there, and they stay.
 */
final class Rebalancer {
  private static final Logger LOG = LoggerFactory.getLogger(Rebalancer.class);

  /** In a batch a quarter of the partitions move at most, so that the other tasks go on with what they have. */
  private static final int PART_OF_A_BATCH = 4;

  /**
   * Where only weights differ, they have to so many times: batches differ, too. After each time that something moved,
   * and the executors stayed the same, twice as many: where one executor is slower than others, times say something
   * else once a partition has moved.
   */
  private static final int TIMES_UNEVEN = 3;

  private static final int MOST_TIMES_UNEVEN = 1_000;

  /** In so many batches all that has to move has moved. */
  private static final int ROUNDS = PART_OF_A_BATCH + 1;

  /** An executor to which most partitions did not come gets none for so long, and then for twice as long. */
  private static final long PAUSE_NANOS = TimeUnit.MINUTES.toNanos(1);

  private static final long LONGEST_PAUSE_NANOS = TimeUnit.MINUTES.toNanos(30);

  /** Where all is even and executors are the same, it is not looked at more often. */
  private static final long LOOK_AGAIN_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** Of so many batches the median tells what a task takes. */
  private static final int BATCHES = 3;

  /** Added to each, so that differences make no difference that are small in themselves. */
  static volatile long leastMillis = 200;

  private static final long LEAST_ROWS = 1_000;

  private static final Map<String, Rebalancer> RUNS = new ConcurrentHashMap<>();
  private static final LongAdder MOVED = new LongAdder();

  private static Reference<SparkContext> heard = new WeakReference<>(null);
  private static TaskLoads loads;

  private final String run;
  private final Places places;
  private final Map<Long, StageState> stages = new ConcurrentHashMap<>();
  private Set<String> takersBefore = Set.of();
  private long seenBatch = -1;

  /** All tasks of the first batch had to load, so it tells little. */
  private long firstBatch = -1;

  private boolean isSettled;
  private long lookedNanos;

  /** Executors to which partitions did not come: until when they get none, and for how long that was. */
  private final Map<String, Pause> pauses = new HashMap<>();

  private record Pause(long untilNanos, long nanos) {}

  private Rebalancer(StatefulStages stages) {
    run = stages.run().toString();
    places = new Places(stages.location(), stages.run());
  }

  /** A stage of the query, and what is known of it. */
  private static final class StageState {
    final List<Long> operators;

    /** By operator, the stores that a partition has. */
    final Map<Long, List<String>> stores = new TreeMap<>();

    /** By partition, the milliseconds of its last tasks, the newest last. */
    final List<List<Long>> millis = new ArrayList<>();

    final long[] rows;

    /** The batch in which each has moved last: its task had to load. */
    final long[] movedIn;

    /** How many partitions each executor has. */
    volatile Map<String, Integer> counts = Map.of();

    /** Where each partition is to be that has moved with the last look. */
    final Map<Integer, String> wished = new HashMap<>();

    /** In how many more batches partitions move. */
    int roundsLeft;

    int timesUneven;
    int timesNeeded = 1;

    StageState(List<Long> operators, int partitions) {
      this.operators = operators;
      for (int i = 0; i < partitions; i++) {
        millis.add(new ArrayList<>());
      }
      rows = new long[partitions];
      movedIn = new long[partitions];
      Arrays.fill(movedIn, -1);
    }

    void learn(long batch, TaskLoads.StageLoad load) {
      for (int i = 0; i < Math.min(rows.length, load.partitions()); i++) {
        if (!load.knows(i)) {
          continue;
        }
        rows[i] = load.rows[i];
        if (movedIn[i] != batch) {
          List<Long> last = millis.get(i);
          last.add(load.millis[i]);
          last.subList(0, Math.max(0, last.size() - BATCHES)).clear();
        }
      }
    }

    /** What each partition weighs; 1 is what one does of which nothing is known. */
    double[] weights() {
      double[] times = millis.stream().mapToDouble(each -> median(each) + leastMillis).toArray();
      double[] counts = Arrays.stream(rows).mapToDouble(each -> each + LEAST_ROWS).toArray();
      double meanTime = Arrays.stream(times).average().orElse(1);
      double meanCount = Arrays.stream(counts).average().orElse(1);
      double[] weights = new double[rows.length];
      Arrays.setAll(weights, i -> (1 + times[i] / meanTime + counts[i] / meanCount) / 3);
      return weights;
    }

    private static long median(List<Long> some) {
      return some.isEmpty() ? 0 : some.stream().sorted().toList().get(some.size() / 2);
    }
  }

  /** How many partitions this driver has wished elsewhere. */
  static long moved() {
    return MOVED.sum();
  }

  /** How many runs are known. */
  static int knownRuns() {
    return RUNS.size();
  }

  /** A batch is planned, and none of its tasks has begun. */
  static void before(SparkContext context, StatefulStages stages) {
    TaskLoads heardOf = listening(context);
    Rebalancer of = RUNS.computeIfAbsent(stages.run().toString(), ignored -> new Rebalancer(stages));
    of.look(context, stages, heardOf);
  }

  private static synchronized TaskLoads listening(SparkContext context) {
    if (heard.get() != context) {
      RUNS.clear();
      heard = new WeakReference<>(context);
      loads = new TaskLoads(RUNS::remove);
      context.addSparkListener(loads);
    }
    return loads;
  }

  private synchronized void look(SparkContext context, StatefulStages found, TaskLoads heardOf) {
    long batch = SparkQuery.batchOf(context);
    if (batch == seenBatch) {
      return;
    }
    seenBatch = batch;
    firstBatch = firstBatch < 0 ? batch : firstBatch;
    heardOf.listenFor(run);
    List<StageState> all = found.all().stream().map(each -> stageOf(each, found.partitions())).toList();
    heardOf.take(run).forEach((of, known) -> learn(all, found.isChain(), of, known));
    Map<String, Places.Taker> takers = Places.takers(context);
    boolean hasChanged = !takers.keySet().equals(takersBefore);
    int slotsOfNew = 0;
    for (Places.Taker each : takers.values()) {
      slotsOfNew += takersBefore.contains(each.id()) ? 0 : each.slots();
    }
    takersBefore = Set.copyOf(takers.keySet());
    boolean isSoon = System.nanoTime() - lookedNanos < LOOK_AGAIN_NANOS;
    if (takers.size() < 2 || !hasChanged && isSettled && isSoon) {
      return;
    }
    lookedNanos = System.nanoTime();
    isSettled = true;
    int most = (found.partitions() + PART_OF_A_BATCH - 1) / PART_OF_A_BATCH;
    // A process that has just begun is slow: each of its slots gets one at first.
    most = slotsOfNew > 0 ? Math.min(most, slotsOfNew) : most;
    for (StageState each : all) {
      even(each, takers, hasChanged, most, batch);
    }
  }

  private StageState stageOf(StatefulStages.Stage stage, int partitions) {
    return stages.computeIfAbsent(stage.operators().get(0), first -> new StageState(stage.operators(), partitions));
  }

  private void learn(List<StageState> all, boolean isChain, long batch, List<TaskLoads.StageLoad> known) {
    if (batch == firstBatch || known.size() != all.size() || known.size() > 1 && !isChain) {
      return;
    }
    for (int i = 0; i < known.size(); i++) {
      all.get(i).learn(batch, known.get(i));
    }
  }

  private void even(StageState stage, Map<String, Places.Taker> takers, boolean hasChanged, int most, long batch) {
    List<Integer> partitions = new ArrayList<>();
    List<Balance.Unit> units = new ArrayList<>();
    boolean isHomeless = false;
    double[] weights = stage.weights();
    for (int i = 0; i < weights.length; i++) {
      String where = whereIs(stage, i);
      if (where != null) {
        partitions.add(i);
        units.add(new Balance.Unit(where, weights[i]));
        isHomeless |= !takers.containsKey(where);
      }
    }
    if (units.isEmpty()) {
      // Nothing is loaded yet. Spark spreads the first batch evenly.
      isSettled = false;
      return;
    }
    judgeWishes(stage, partitions, units);
    List<Balance.Executor> executors = new ArrayList<>();
    long now = System.nanoTime();
    for (Places.Taker each : takers.values()) {
      Pause pause = pauses.get(each.id());
      boolean takesMore = pause == null || now - pause.untilNanos >= 0;
      executors.add(new Balance.Executor(each.id(), each.slots(), others(each, stage), takesMore));
    }
    Balance balance = new Balance(executors, units);
    if (hasChanged || isHomeless) {
      stage.roundsLeft = ROUNDS;
      stage.timesNeeded = TIMES_UNEVEN;
    }
    Map<Integer, String> moves = Map.of();
    if (!isHomeless && balance.isEven()) {
      stage.roundsLeft = 0;
      stage.timesUneven = 0;
    } else {
      isSettled = false;
      boolean isNew = stage.timesNeeded == 1 && !balance.isUnevenByCount();
      if (stage.roundsLeft == 0 && ++stage.timesUneven >= (isNew ? TIMES_UNEVEN : stage.timesNeeded)) {
        stage.roundsLeft = ROUNDS;
        stage.timesUneven = 0;
        stage.timesNeeded = Math.min(MOST_TIMES_UNEVEN, Math.max(TIMES_UNEVEN, 2 * stage.timesNeeded));
      }
      if (stage.roundsLeft > 0) {
        stage.roundsLeft--;
        moves = balance.moves(most);
      }
    }
    Map<String, Integer> counts = new HashMap<>();
    for (int i = 0; i < units.size(); i++) {
      String to = moves.get(i);
      counts.merge(to == null ? units.get(i).where() : to, 1, Integer::sum);
      if (to != null) {
        move(stage, partitions.get(i), takers.get(to));
        stage.movedIn[partitions.get(i)] = batch;
        stage.wished.put(partitions.get(i), to);
      }
    }
    stage.counts = counts;
    if (!moves.isEmpty()) {
      MOVED.add(moves.size());
      LOG.info(
          "In batch {} of run {}, {} of {} partitions of operators {} move to other executors; they then have {}",
          batch,
          run,
          moves.size(),
          units.size(),
          stage.operators,
          new TreeMap<>(counts));
    }
  }

  /**
   * Whether partitions are where they were to be: a busy executor, or the rest of the batch's plan, may be in the way.
   */
  private void judgeWishes(StageState stage, List<Integer> partitions, List<Balance.Unit> units) {
    Map<String, int[]> fulfilled = new HashMap<>();
    for (int i = 0; i < units.size(); i++) {
      String wished = stage.wished.get(partitions.get(i));
      if (wished != null) {
        fulfilled.computeIfAbsent(wished, executor -> new int[2])[wished.equals(units.get(i).where()) ? 1 : 0]++;
      }
    }
    stage.wished.clear();
    fulfilled.forEach(
        (executor, counts) -> {
          // One that has just begun is slow, and some of its tasks go elsewhere.
          boolean isBusy = counts[1] < counts[0];
          Pause before = isBusy ? pauses.get(executor) : pauses.remove(executor);
          if (isBusy) {
            long nanos = before == null ? PAUSE_NANOS : Math.min(LONGEST_PAUSE_NANOS, 2 * before.nanos);
            pauses.put(executor, new Pause(System.nanoTime() + nanos, nanos));
          }
        });
  }

  private String whereIs(StageState stage, int partition) {
    long operator = stage.operators.get(0);
    List<String> stores = storesOf(stage, operator, partition);
    return stores.isEmpty() ? null : places.of(operator, partition, stores.get(0));
  }

  private void move(StageState stage, int partition, Places.Taker to) {
    for (long operator : stage.operators) {
      for (String store : storesOf(stage, operator, partition)) {
        places.say(operator, partition, store, to);
      }
    }
  }

  /** The stores that an operator has in each partition. They are remembered once they are known. */
  private List<String> storesOf(StageState stage, long operator, int partition) {
    List<String> stores = stage.stores.getOrDefault(operator, List.of());
    if (stores.isEmpty()) {
      stores = places.storesOf(operator, partition);
      stage.stores.put(operator, stores);
    }
    return stores;
  }

  /** How many partitions of other queries, and of other stages of this one, an executor has. */
  private double others(Places.Taker taker, StageState but) {
    double sum = 0;
    for (Rebalancer each : RUNS.values()) {
      for (StageState stage : each.stages.values()) {
        sum += stage == but ? 0 : stage.counts.getOrDefault(taker.id(), 0);
      }
    }
    return sum;
  }
}
