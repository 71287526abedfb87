package io.pyspark.statestore.log;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;

/**
 * How much garbage a checkpoint's merged files hold, whether it is time to move live segments out of them, and out of
 * which files. Shares are of the garbage that {@code maxSpaceAmplification} allows.
 */
final class Garbage {
  /** From this share on, dead files are unlinked before the next maintenance. */
  private static final double SOME = 0.2;
  /**
   * From this share on live segments are moved, until garbage is down to {@code STOP}: what waits may die by itself.
   */
  private static final double START = 0.55;

  private static final double STOP = 0.5;
  /** From this share on, moving is not bounded by what was written. */
  private static final double URGENT = 0.9;
  /** Bytes that may be moved for each byte that is written, as long as garbage is not urgent. */
  private static final double SHARE_OF_WRITES = 0.25;
  /** Copied bytes per reclaimed byte. Files that cost more are left to die by themselves. */
  private static final double MAX_COST = 1.5;

  private static final double MAX_URGENT_COST = 3;
  /** Less garbage than this is left alone, in bytes. */
  private static final long WORTHWHILE = 16 << 10;

  private final Index index;
  private final Rules rules;
  private final Pins pins;
  private final Predicate<String> serves;
  private final AtomicLong credit = new AtomicLong();

  /**
   * @param pins of forks, which need files, so that these stay in any case
   * @param serves whether this process writes to a path's partition, and so moves its segments
   */
  Garbage(Index index, Rules rules, Pins pins, Predicate<String> serves) {
    this.index = index;
    this.rules = rules;
    this.pins = pins;
    this.serves = serves;
  }

  /** Bytes of merged files that are neither live segments nor their entries, and can be reclaimed by moving these. */
  long bytes() {
    // Asked ten times a second, so the index has counted it already.
    Pins.Held held = pins.held();
    if (held.all()) {
      return 0;
    }
    long pinned = held.files().stream().map(index::file).filter(Objects::nonNull).mapToLong(index::garbage).sum();
    return index.garbage() - pinned;
  }

  boolean isSome() {
    return isAbove(SOME);
  }

  /** Whether there is so much that live segments are worth moving. */
  boolean isMuch() {
    return isAbove(START);
  }

  /** Whether there is so much that the cost of moving no longer counts. */
  boolean isUrgent() {
    return isAbove(URGENT);
  }

  /** Whether it is time to move live segments, and this process may move some. */
  boolean callsForMoving() {
    if (excess() <= 0) {
      return false;
    }
    List<Candidate> found = candidates();
    return !found.isEmpty() && found.get(0).bytes() <= budget();
  }

  /** Bytes above those at which moving stops; 0 where it is not worth beginning. */
  double excess() {
    return isMuch() ? bytes() - STOP * allowed() : 0;
  }

  /** Bytes that may be moved now. */
  long budget() {
    long most = rules.options().maxFileSize();
    return isUrgent() ? most : Math.min(most, credit.get());
  }

  /** This process has committed so many bytes. */
  void written(long bytes) {
    long earned = (long) (SHARE_OF_WRITES * bytes);
    credit.updateAndGet(known -> Math.min(rules.options().maxFileSize(), known + earned));
  }

  /** This process has moved so many bytes. */
  void moved(long bytes) {
    credit.updateAndGet(known -> Math.max(-rules.options().maxFileSize(), known - bytes));
  }

  private boolean isAbove(double share) {
    return bytes() > Math.max(WORTHWHILE, share * allowed());
  }

  private double allowed() {
    return (rules.options().maxSpaceAmplification() - 1) * index.liveBytes();
  }

  /** What lives in a reference file is in other checkpoints, and what a fork needs stays: moving frees neither. */
  private boolean canBeReclaimed(MergedFile file) {
    return !file.isReference() && !pins.hold(file);
  }

  /**
   * A file that is mostly garbage.
   *
   * @param segments its live ones that this process may move
   * @param bytes of these, with what their index entries take
   * @param liveBytes of all live segments in the file, likewise
   */
  record Candidate(MergedFile file, List<Segment> segments, long bytes, long liveBytes) {
    /** Bytes that are reclaimed by moving these, where the owners of the others move theirs. */
    double gain() {
      return (double) (file.size() - liveBytes) * bytes / Math.max(1, liveBytes);
    }

    /** Copied bytes per reclaimed byte. */
    double cost() {
      return (double) liveBytes / Math.max(1, file.size() - liveBytes);
    }
  }

  /** The files that are worth moving out of, cheapest first. */
  List<Candidate> candidates() {
    double maxCost = isUrgent() ? MAX_URGENT_COST : MAX_COST;
    List<Candidate> found = new ArrayList<>();
    for (MergedFile file : index.files()) {
      if (rules.isClosed(file) && file.wholeIndexRead() && !file.isIndexOnly() && canBeReclaimed(file)) {
        List<Segment> live = index.liveSegments(file);
        List<Segment> own = live.stream().filter(s -> serves.test(s.path()) && s.mayBeCopied()).toList();
        Candidate candidate = new Candidate(file, own, bytes(own), bytes(live));
        if (!own.isEmpty() && candidate.cost() < maxCost) {
          found.add(candidate);
        }
      }
    }
    found.sort(Comparator.comparingDouble(Candidate::cost));
    return found;
  }

  private static long bytes(List<Segment> segments) {
    return segments.stream().mapToLong(Segment::lengthWithEntries).sum();
  }
}
