package io.pyspark.statestore.log;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
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
  private final Predicate<MergedFile> isPinned;
  private final Predicate<String> serves;
  private final AtomicLong credit = new AtomicLong();

  /**
   * @param isPinned whether a fork needs a file, so that it stays in any case
   * @param serves whether this process writes to a path's partition, and so moves its segments
   */
  Garbage(Index index, Rules rules, Predicate<MergedFile> isPinned, Predicate<String> serves) {
    this.index = index;
    this.rules = rules;
    this.isPinned = isPinned;
    this.serves = serves;
  }

  /** Bytes of merged files that are neither live segments nor their entries, and can be reclaimed by moving these. */
  long bytes() {
    return index.garbage(this::canBeReclaimed);
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
    return plan().callsForMoving();
  }

  /**
   * What a process may move now.
   *
   * @param excess bytes of garbage above those at which moving stops
   * @param budget bytes that may be moved
   * @param candidates the files that are worth moving out of, cheapest first
   */
  record Plan(double excess, long budget, List<Candidate> candidates) {
    boolean callsForMoving() {
      return excess > 0 && !candidates.isEmpty() && candidates.get(0).bytes() <= budget;
    }
  }

  /** Plans by what this process knows of the whole checkpoint. */
  Plan plan() {
    double excess = excess();
    return new Plan(excess, budget(isUrgent()), excess > 0 ? candidates(serves) : List.of());
  }

  /** What the index service tells a process that serves some partitions. */
  ServiceMessages.Moves moves(Predicate<String> servedByAsker) {
    double excess = excess();
    List<ServiceMessages.Move> files = new ArrayList<>();
    for (Candidate candidate : excess > 0 ? candidates(servedByAsker) : List.<Candidate>of()) {
      files.add(new ServiceMessages.Move(candidate.file().name(), candidate.file().size(), candidate.liveBytes()));
    }
    return new ServiceMessages.Moves(excess, isUrgent(), files);
  }

  /** Plans by what the index service has told, for a process that knows its own partitions only. */
  Plan plan(ServiceMessages.Moves told) {
    List<Candidate> candidates = new ArrayList<>();
    for (ServiceMessages.Move move : told.files()) {
      MergedFile file = index.file(move.file());
      List<Segment> own = file == null ? List.of() : own(index.liveSegments(file), serves);
      if (!own.isEmpty()) {
        candidates.add(new Candidate(file, own, move.size(), bytes(own), move.liveBytes()));
      }
    }
    return new Plan(told.excess(), budget(told.urgent()), candidates);
  }

  /** Bytes above those at which moving stops; 0 where it is not worth beginning. */
  private double excess() {
    return isMuch() ? bytes() - STOP * allowed() : 0;
  }

  /** Bytes that may be moved now. */
  private long budget(boolean urgent) {
    long most = rules.options().maxFileSize();
    return urgent ? most : Math.min(most, credit.get());
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
    return !file.isReference() && !isPinned.test(file);
  }

  /**
   * A file that is mostly garbage.
   *
   * @param segments its live ones that this process may move
   * @param size of the whole file
   * @param bytes of these segments, with what their index entries take
   * @param liveBytes of all live segments in the file, likewise
   */
  record Candidate(MergedFile file, List<Segment> segments, long size, long bytes, long liveBytes) {
    /** Bytes that are reclaimed by moving these, where the owners of the others move theirs. */
    double gain() {
      return (double) (size - liveBytes) * bytes / Math.max(1, liveBytes);
    }

    /** Copied bytes per reclaimed byte. */
    double cost() {
      return (double) liveBytes / Math.max(1, size - liveBytes);
    }
  }

  /** The files that are worth moving out of, cheapest first. */
  private List<Candidate> candidates(Predicate<String> servedBy) {
    double maxCost = isUrgent() ? MAX_URGENT_COST : MAX_COST;
    List<Candidate> found = new ArrayList<>();
    for (MergedFile file : index.files()) {
      if (rules.isClosed(file) && file.wholeIndexRead() && !file.isIndexOnly() && canBeReclaimed(file)) {
        List<Segment> live = index.liveSegments(file);
        List<Segment> own = own(live, servedBy);
        Candidate candidate = new Candidate(file, own, file.size(), bytes(own), bytes(live));
        if (!own.isEmpty() && candidate.cost() < maxCost) {
          found.add(candidate);
        }
      }
    }
    found.sort(Comparator.comparingDouble(Candidate::cost));
    return found;
  }

  private static List<Segment> own(List<Segment> live, Predicate<String> servedBy) {
    return live.stream().filter(s -> servedBy.test(s.path()) && s.mayBeCopied()).toList();
  }

  private static long bytes(List<Segment> segments) {
    return segments.stream().mapToLong(Segment::lengthWithEntries).sum();
  }
}
