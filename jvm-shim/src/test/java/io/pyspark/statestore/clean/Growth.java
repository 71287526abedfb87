package io.pyspark.statestore.clean;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Lets a history grow and asks {@link Consolidation#plan} and {@link SizeTiers} in each pass, without a disk. */
public final class Growth {
  private Growth() {}

  /**
   * Files come and stay.
   *
   * @param perPass how many come between two passes
   * @param bytes of each one's entries
   * @param others files that a cold process opens in any case
   * @return the most that it had to open besides the others, after a pass; how often each byte was written on average;
   *     how many index-only files were written
   */
  public static double[] consolidated(int files, int perPass, long bytes, int others) {
    Map<String, Long> indexes = new LinkedHashMap<>();
    int unrepeated = 0;
    int most = 0;
    int writes = 0;
    double written = 0;
    for (int seen = 0; seen < files; seen += perPass) {
      unrepeated += perPass;
      List<Consolidation.Replaceable> known =
          indexes.entrySet().stream()
              .map(e -> new Consolidation.Replaceable(e.getKey(), e.getValue(), e.getValue()))
              .toList();
      Set<String> taken = Consolidation.plan(others, unrepeated, unrepeated * bytes, known);
      if (taken != null) {
        long sum = unrepeated * bytes + taken.stream().mapToLong(indexes::get).sum();
        indexes.keySet().removeAll(taken);
        indexes.put("index " + writes++, sum);
        written += sum;
        unrepeated = 0;
      }
      most = Math.max(most, unrepeated + indexes.size());
    }
    return new double[] {most, written / ((double) bytes * files), writes};
  }

  /**
   * What {@link Consolidation#plan} says.
   *
   * @param sizes of the index-only files, each followed by how much of it is useful
   * @return the sizes of those that it takes in; null where nothing is to be written
   */
  public static List<Long> taken(int others, int unrepeated, long bytes, List<? extends Number> sizes) {
    List<Consolidation.Replaceable> known = new ArrayList<>();
    for (int i = 0; i < sizes.size(); i += 2) {
      long size = sizes.get(i).longValue();
      known.add(new Consolidation.Replaceable(Long.toString(size), size, sizes.get(i + 1).longValue()));
    }
    Set<String> taken = Consolidation.plan(others, unrepeated, bytes, known);
    return taken == null ? null : taken.stream().map(Long::valueOf).sorted().toList();
  }

  private record Small(int owner, long size, int moves, Object id) {
    Small(int owner, long size, int moves) {
      this(owner, size, moves, new Object());
    }
  }

  /**
   * Each of many processes writes a file per pass, and joins its own.
   *
   * @return the most small files after the first tenth of the passes, how often a byte was moved on average, and how
   *     often one was moved at most
   */
  public static double[] joined(int processes, int passes, long bytes, long maxFileSize) {
    List<Small> files = new ArrayList<>();
    int most = 0;
    double moved = 0;
    int moves = 0;
    for (int pass = 0; pass < passes; pass++) {
      for (int process = 0; process < processes; process++) {
        files.add(new Small(process, bytes, 0));
        Small joined = join(files, process, maxFileSize);
        moved += joined.size;
        moves = Math.max(moves, joined.moves);
      }
      if (pass > passes / 10) {
        most = Math.max(most, (int) files.stream().filter(f -> isSmall(f, maxFileSize)).count());
      }
    }
    return new double[] {most, moved / ((double) bytes * processes * passes), moves};
  }

  private static boolean isSmall(Small file, long maxFileSize) {
    return file.size <= SizeTiers.largest(maxFileSize);
  }

  /** As {@link Garbage#joinable} and {@link Relocator} do it; returns the new file, or an empty one. */
  private static Small join(List<Small> files, int process, long maxFileSize) {
    List<Small> small = files.stream().filter(f -> isSmall(f, maxFileSize)).toList();
    for (List<Small> tier : SizeTiers.crowded(small, Small::size)) {
      long sum = 0;
      int moves = 0;
      List<Small> found = new ArrayList<>();
      for (Small file : tier) {
        if (file.owner == process && sum + file.size <= maxFileSize) {
          found.add(file);
          sum += file.size;
          moves = Math.max(moves, file.moves + 1);
        }
      }
      if (found.size() >= SizeTiers.RATIO) {
        files.removeAll(found);
        files.add(new Small(process, sum, moves));
        return files.get(files.size() - 1);
      }
    }
    return new Small(process, 0, 0);
  }
}
