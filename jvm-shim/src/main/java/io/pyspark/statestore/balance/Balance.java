package io.pyspark.statestore.balance;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Which partitions are to move, and where to: the fewest that even out what executors have to do.
 *
 * <p>What an executor should have is its share by task slots. Partitions on an executor that takes no tasks any more
 * all get another one at once, because they move anyway. The others move from the executor that has most in proportion
 * to its share to the one that has least, the heaviest that helps first, until each is within {@link #TOLERANCE} of its
 * share, or no move helps, or as many have moved as may in a batch.
 *
 * <p>It knows no Spark, and the same question always gets the same answer.
 */
final class Balance {
  /** What an executor may have more or less than its share. */
  static final double TOLERANCE = 0.2;

  /** A move has to make the larger one of both executors smaller by this part of a mean partition, at least. */
  private static final double LEAST_GAIN = 0.01;

  /**
   * An executor that takes tasks.
   *
   * @param slots tasks that it runs at the same time
   * @param others what other queries have on it; it decides between executors that are alike
   * @param takesMore whether partitions are moved to it, which have another executor
   */
  record Executor(String id, int slots, double others, boolean takesMore) {}

  /**
   * A partition's stores.
   *
   * @param where the id of the executor that has them
   * @param weight above 0
   */
  record Unit(String where, double weight) {}

  private static final class Load {
    final Executor executor;
    final List<Integer> units = new ArrayList<>();
    double weight;

    Load(Executor executor) {
      this.executor = executor;
    }

    double ratio() {
      return ratioWith(0);
    }

    double ratioWith(double more) {
      return (weight + more) / executor.slots;
    }

    void add(int unit, double its) {
      units.add(unit);
      weight += its;
    }
  }

  private final List<Unit> units;
  private final Map<String, Load> loads = new TreeMap<>();

  /** Of partitions that are somewhere, and at least one executor. */
  Balance(List<Executor> executors, List<Unit> units) {
    this.units = units;
    executors.forEach(each -> loads.put(each.id(), new Load(each)));
    for (int i = 0; i < units.size(); i++) {
      Load load = loads.get(units.get(i).where());
      if (load != null) {
        load.add(i, units.get(i).weight());
      }
    }
  }

  /** Whether each executor that takes tasks is within the tolerance, or as near as whole partitions allow. */
  boolean isEven() {
    return next() == null;
  }

  /** Whether executors differ by more than one partition from their shares, whatever these weigh. */
  boolean isUnevenByCount() {
    double slots = loads.values().stream().mapToInt(each -> each.executor.slots).sum();
    return loads.values().stream()
        .anyMatch(each -> Math.abs(each.units.size() - units.size() * each.executor.slots / slots) > 1);
  }

  /**
   * Chooses the moves of a batch.
   *
   * @param most so many partitions move, besides those that have to
   * @return by the number of the partition, the id of its new executor
   */
  Map<Integer, String> moves(int most) {
    Map<Integer, String> moves = new HashMap<>(placeHomeless());
    int left = most;
    while (left > 0) {
      Move move = next();
      if (move == null) {
        break;
      }
      double weight = units.get(move.unit).weight();
      move.from.units.remove((Integer) move.unit);
      move.from.weight -= weight;
      move.to.add(move.unit, weight);
      left -= moves.put(move.unit, move.to.executor.id()) == null ? 1 : 0;
    }
    moves.entrySet().removeIf(each -> each.getValue().equals(units.get(each.getKey()).where()));
    return moves;
  }

  /** The heaviest first, each to the executor that has least with it. */
  private Map<Integer, String> placeHomeless() {
    List<Integer> homeless = new ArrayList<>();
    for (int i = 0; i < units.size(); i++) {
      if (!loads.containsKey(units.get(i).where())) {
        homeless.add(i);
      }
    }
    homeless.sort((a, b) -> Double.compare(units.get(b).weight(), units.get(a).weight()));
    Map<Integer, String> placed = new HashMap<>();
    for (int unit : homeless) {
      double weight = units.get(unit).weight();
      Load best = null;
      for (Load each : loads.values()) {
        best = best == null || isLess(each, best, weight) ? each : best;
      }
      best.add(unit, weight);
      placed.put(unit, best.executor.id());
    }
    return placed;
  }

  private static boolean isLess(Load one, Load other, double more) {
    double difference = one.ratioWith(more) - other.ratioWith(more);
    return difference < -1e-9 || difference < 1e-9 && one.executor.others < other.executor.others;
  }

  private record Move(int unit, Load from, Load to) {}

  /** The next move: from the executor that has most, where one of its partitions helps; null where all is even. */
  private Move next() {
    double slots = loads.values().stream().mapToInt(each -> each.executor.slots).sum();
    double total = loads.values().stream().mapToDouble(each -> each.weight).sum();
    double share = total / slots;
    List<Load> heaviest = new ArrayList<>(loads.values());
    heaviest.sort((a, b) -> Double.compare(b.ratio(), a.ratio()));
    Load least = null;
    for (Load each : heaviest) {
      if (each.executor.takesMore) {
        least = least == null || isLess(each, least, 0) ? each : least;
      }
    }
    if (least == null) {
      return null;
    }
    boolean isStarving = least.ratio() < share * (1 - TOLERANCE);
    for (Load from : heaviest) {
      if (!isStarving && from.ratio() <= share * (1 + TOLERANCE)) {
        return null;
      }
      Move best = bestOf(from, least, LEAST_GAIN * total / units.size() / from.executor.slots);
      if (best != null) {
        return best;
      }
    }
    return null;
  }

  private Move bestOf(Load from, Load to, double gain) {
    Move best = null;
    double lowest = from.ratio() - gain;
    for (int unit : from.units) {
      double weight = units.get(unit).weight();
      double after = Math.max(from.ratioWith(-weight), to.ratioWith(weight));
      if (after < lowest) {
        lowest = after;
        best = new Move(unit, from, to);
      }
    }
    return best;
  }
}
