package io.pyspark.statestore.clean;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.function.ToLongFunction;

/**
 * Says which small files are worth joining where there are too many, as where each group is a file of its own.
 *
 * <p>A file is joined only with files of its size order: those between two powers of {@link #RATIO}. Joining as many of
 * them as that, or more, makes a file of a higher order. So a byte that lives on is moved once per order at most, eight
 * times from 1 KiB to 32 MiB; where so many as {@link #fanIn} are joined, every other order is left out. Files that
 * have lost most of their bytes since may stay in their order; what has died in them pays for that.
 *
 * <p>The number converges. With more than {@link #MANY} files, one of nine orders has more than 22 of them. Where each
 * of many processes may only move some, fewer files suffice the more there are.
 */
final class SizeTiers {
  /**
   * Fewer files are left alone. A cold process opens few of them ({@link Consolidation}), and a listing shows 400 in
   * one page everywhere, so what they cost does not grow with their number below that.
   */
  static final int MANY = 200;

  static final int RATIO = 4;
  private static final int FAN_IN = 16;
  private static final long LOWEST = 1 << 10;

  private SizeTiers() {}

  /** The largest file that is joined with others: moving larger ones makes hardly fewer files. */
  static long largest(long maxFileSize) {
    return maxFileSize / RATIO;
  }

  /** So many files of one order are joined; none where there are not too many files in all. */
  static int fanIn(int files) {
    return files <= MANY ? Integer.MAX_VALUE : files <= 2 * MANY ? FAN_IN : files <= 4 * MANY ? FAN_IN / 2 : RATIO;
  }

  /** The size order of a file. */
  static int tier(long size) {
    int tier = 0;
    for (long above = LOWEST; size >= above; above *= RATIO) {
      tier++;
    }
    return tier;
  }

  /** The orders in which there are enough files to join, the smallest first. */
  static <F> List<List<F>> crowded(Collection<F> files, ToLongFunction<F> size) {
    SortedMap<Integer, List<F>> tiers = new TreeMap<>();
    for (F file : files) {
      tiers.computeIfAbsent(tier(size.applyAsLong(file)), t -> new ArrayList<>()).add(file);
    }
    return tiers.values().stream().filter(tier -> tier.size() >= fanIn(files.size())).toList();
  }
}
