package io.pyspark.statestore.rocks;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;

/**
 * Which files of a database RocksDB would compact, by its own rules for levels (its LevelCompactionPicker): the level
 * that is furthest above its size first, and of level 0 the number of files. It knows keys and sizes only, so it can
 * say so without a database.
 *
 * <p>RocksDB completes what it is given: all files of the levels in between whose keys overlap. What is said here is
 * complete in that sense, so that nothing is read that nobody has expected.
 */
final class Levels {
  private static final Comparator<byte[]> BYTES = Arrays::compareUnsigned;

  /** An SST. */
  record Table(String name, int level, long bytes, byte[] smallest, byte[] largest) {
    boolean overlaps(byte[] from, byte[] to) {
      return BYTES.compare(smallest, to) <= 0 && BYTES.compare(largest, from) >= 0;
    }
  }

  /**
   * RocksDB's options of the same names.
   *
   * @param isDynamic whether sizes of levels follow that of the last one
   */
  record Shape(int levels, int level0Trigger, long baseBytes, double multiplier, boolean isDynamic) {}

  /** What to compact. */
  record Choice(List<Table> inputs, int outputLevel) {
    long bytes() {
      return inputs.stream().mapToLong(Table::bytes).sum();
    }
  }

  private final Shape shape;
  private final List<List<Table>> levels = new ArrayList<>();

  /** Of a database at one moment. */
  Levels(Shape shape, List<Table> tables) {
    this.shape = shape;
    for (int level = 0; level < shape.levels; level++) {
      int of = level;
      levels.add(
          tables.stream().filter(t -> t.level == of).sorted(Comparator.comparing(Table::smallest, BYTES)).toList());
    }
  }

  int filesOfLevel0() {
    return levels.get(0).size();
  }

  private long bytesOf(int level) {
    return levels.get(level).stream().mapToLong(Table::bytes).sum();
  }

  /** What RocksDB would compact next; empty where nothing is above its size. */
  Optional<Choice> choose() {
    int base = base();
    double[] targets = targets(base);
    int chosen = -1;
    double most = 1;
    double ofLevel0 = (double) filesOfLevel0() / shape.level0Trigger;
    if (ofLevel0 >= most) {
      chosen = 0;
      most = ofLevel0;
    }
    for (int level = 1; level < shape.levels - 1; level++) {
      double score = bytesOf(level) / targets[level];
      if (score > most) {
        chosen = level;
        most = score;
      }
    }
    if (chosen < 0) {
      return Optional.empty();
    }
    int output = chosen == 0 ? base : Math.max(chosen + 1, base);
    List<Table> first = chosen == 0 ? levels.get(0) : List.of(cheapest(chosen, output));
    return Optional.of(new Choice(complete(first, chosen, output), output));
  }

  /** The first level below level 0 that has files, or would get them. */
  private int base() {
    if (!shape.isDynamic) {
      return 1;
    }
    int first = shape.levels;
    double size = 0;
    for (int level = shape.levels - 1; level > 0; level--) {
      first = levels.get(level).isEmpty() ? first : level;
      size = Math.max(size, bytesOf(level));
    }
    if (size == 0) {
      return shape.levels - 1;
    }
    for (int level = shape.levels - 2; level >= first; level--) {
      size /= shape.multiplier;
    }
    int base = first;
    if (size > shape.baseBytes / shape.multiplier) {
      while (base > 1 && size > shape.baseBytes) {
        base--;
        size /= shape.multiplier;
      }
    }
    return base;
  }

  private double[] targets(int base) {
    double[] targets = new double[shape.levels];
    double size = shape.baseBytes;
    if (shape.isDynamic) {
      double largest = 0;
      for (int level = 1; level < shape.levels; level++) {
        largest = Math.max(largest, bytesOf(level));
      }
      size = Math.min(size, Math.max(1, largest / Math.pow(shape.multiplier, shape.levels - 1.0 - base)));
    }
    for (int level = 1; level < shape.levels; level++) {
      // A level above the base has nothing to hold.
      targets[level] = level < base ? 1 : Math.max(size * Math.pow(shape.multiplier, level - base), shape.baseBytes);
    }
    return targets;
  }

  /** The file of a level that has the least below it, for its size. */
  private Table cheapest(int level, int output) {
    return levels.get(level).stream()
        .min(Comparator.comparingDouble(table -> (double) overlapping(table, output) / Math.max(1, table.bytes)))
        .orElseThrow();
  }

  private long overlapping(Table table, int level) {
    return levels.get(level).stream()
        .filter(each -> each.overlaps(table.smallest, table.largest))
        .mapToLong(Table::bytes)
        .sum();
  }

  /**
   * Adds what RocksDB adds (its SanitizeCompactionInputFilesForAllLevels): from level to level what overlaps with all
   * above it, and in each level what is between.
   */
  private List<Table> complete(List<Table> chosen, int from, int output) {
    List<Table> inputs = new ArrayList<>();
    byte[] smallest = null;
    byte[] largest = null;
    for (int at = from; at <= output; at++) {
      List<Table> level = levels.get(at);
      int first = level.size();
      int last = -1;
      for (int i = 0; i < level.size(); i++) {
        Table each = level.get(i);
        if (at == from ? chosen.contains(each) : smallest != null && each.overlaps(smallest, largest)) {
          first = Math.min(first, i);
          last = Math.max(last, i);
        }
      }
      // Versions of one key may be in two files of a level.
      while (at > 0 && last >= 0 && first > 0 && touch(level.get(first - 1), level.get(first))) {
        first--;
      }
      while (at > 0 && last >= 0 && last < level.size() - 1 && touch(level.get(last), level.get(last + 1))) {
        last++;
      }
      for (Table each : level.subList(Math.min(first, last + 1), last + 1)) {
        inputs.add(each);
        smallest = smallest == null || BYTES.compare(each.smallest, smallest) < 0 ? each.smallest : smallest;
        largest = largest == null || BYTES.compare(each.largest, largest) > 0 ? each.largest : largest;
      }
    }
    return inputs;
  }

  private static boolean touch(Table left, Table right) {
    return BYTES.compare(left.largest, right.smallest) >= 0;
  }
}
