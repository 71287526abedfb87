package io.pyspark.statestore.clean;

import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.Pins;
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
public final class Garbage {
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

  /** Bytes that may be joined for each byte that is written: see {@link SizeTiers}, which bounds them for good. */
  private static final double JOINED_PER_WRITTEN = 2;

  /** Less garbage than this is left alone, in bytes. */
  private static final long WORTHWHILE = 16 << 10;

  private final Index index;
  private final Rules rules;
  private final Pins pins;
  private final Predicate<String> serves;
  private final AtomicLong credit = new AtomicLong();
  private final AtomicLong joinCredit;
  private volatile boolean joins;

  /**
   * @param pins of forks, which need files, so that these stay in any case
   * @param serves whether this process writes to a path's partition, and so moves its segments
   */
  Garbage(Index index, Rules rules, Pins pins, Predicate<String> serves) {
    this.index = index;
    this.rules = rules;
    this.pins = pins;
    this.serves = serves;
    this.joinCredit = new AtomicLong(rules.options().maxFileSize());
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

  /**
   * What a process may move now.
   *
   * @param excess bytes of garbage above those at which moving stops
   * @param budget bytes that may be moved
   * @param candidates the files that are worth moving out of, cheapest first
   * @param joinable small files that are worth joining
   */
  record Plan(double excess, long budget, List<Candidate> candidates, List<Candidate> joinable) {
    boolean callsForMoving() {
      return excess > 0 && !candidates.isEmpty() && candidates.get(0).bytes() <= budget;
    }

    /** Whether there are so many small files that some are worth joining, and this process may move what is in them. */
    boolean callsForJoining() {
      return !joinable.isEmpty();
    }
  }

  /** Plans by what this process knows of the whole checkpoint. */
  Plan plan() {
    double excess = excess();
    return new Plan(
        excess,
        budget(isUrgent()),
        excess > 0 ? candidates(serves) : List.of(),
        joins ? joinable(serves, mostToJoin()) : List.of());
  }

  /**
   * Out of which files to move live segments, as the index service tells a process that knows its own partitions only.
   *
   * @param excess bytes of garbage above those at which moving stops
   * @param urgent whether the cost of moving no longer counts
   * @param files that are mostly garbage
   * @param joins small files, because there are too many
   */
  public record Moves(double excess, boolean urgent, List<Move> files, List<Move> joins) {}

  /**
   * A file to move live segments out of.
   *
   * @param liveBytes of its live segments, with what their index entries take
   */
  public record Move(String file, long size, long liveBytes) {}

  /** What the index service tells a process that serves some partitions. */
  public Moves moves(Predicate<String> servedByAsker) {
    double excess = excess();
    List<Candidate> garbage = excess > 0 ? candidates(servedByAsker) : List.of();
    List<Candidate> small = joins ? joinable(servedByAsker, rules.options().maxFileSize()) : List.of();
    return new Moves(excess, isUrgent(), moves(garbage), moves(small));
  }

  private static List<Move> moves(List<Candidate> candidates) {
    return candidates.stream().map(c -> new Move(c.file().name(), c.size(), c.liveBytes())).toList();
  }

  /** Plans by what the index service has told, for a process that knows its own partitions only. */
  Plan plan(Moves told) {
    List<Candidate> joinable = new ArrayList<>();
    long bytes = 0;
    for (Candidate candidate : candidates(told.joins())) {
      bytes += candidate.bytes();
      if (bytes <= mostToJoin()) {
        joinable.add(candidate);
      }
    }
    return new Plan(told.excess(), budget(told.urgent()), candidates(told.files()), joinable);
  }

  private List<Candidate> candidates(List<Move> told) {
    List<Candidate> candidates = new ArrayList<>();
    for (Move move : told) {
      MergedFile file = index.file(move.file());
      List<Segment> own = file == null ? List.of() : own(index.liveSegments(file), serves);
      if (!own.isEmpty()) {
        candidates.add(new Candidate(file, own, move.size(), bytes(own), move.liveBytes()));
      }
    }
    return candidates;
  }

  private long mostToJoin() {
    return Math.min(rules.options().maxFileSize(), joinCredit.get());
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
  public void written(long bytes) {
    earn(credit, SHARE_OF_WRITES * bytes);
    earn(joinCredit, JOINED_PER_WRITTEN * bytes);
  }

  private void earn(AtomicLong account, double bytes) {
    account.updateAndGet(known -> Math.min(rules.options().maxFileSize(), known + (long) bytes));
  }

  /** This process has moved so many bytes. */
  void moved(long bytes) {
    credit.updateAndGet(known -> Math.max(-rules.options().maxFileSize(), known - bytes));
  }

  /** Live segments of small files are joined from now on, or no longer. */
  void joins(boolean does) {
    joins = does;
  }

  /** A file of so many bytes is not joined with others. */
  long largestToJoin() {
    return SizeTiers.largest(rules.options().maxFileSize());
  }

  /** This process has joined so many bytes. */
  void joined(long bytes) {
    joinCredit.addAndGet(-bytes);
  }

  private boolean isAbove(double share) {
    return bytes() > Math.max(WORTHWHILE, share * allowed());
  }

  private double allowed() {
    return (rules.options().maxSpaceAmplification() - 1) * index.liveBytes();
  }

  /**
   * What lives in a reference file is in other checkpoints, and what a fork needs stays: moving frees neither. An
   * index-only file is no garbage as long as it saves opens.
   */
  private boolean canBeReclaimed(MergedFile file) {
    return !file.isReference() && !file.isIndexOnly() && !pins.hold(file);
  }

  /**
   * A file to move live segments out of.
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
      if (mayBeMovedOut(file)) {
        Candidate candidate = candidate(file, servedBy);
        if (!candidate.segments().isEmpty() && candidate.cost() < maxCost) {
          found.add(candidate);
        }
      }
    }
    found.sort(Comparator.comparingDouble(Candidate::cost));
    return found;
  }

  /**
   * Files of one size order whose live segments are worth moving into one file, because there are too many files: see
   * {@link SizeTiers}. They have at most a {@code maxFileSize} together. None where there are few files.
   */
  private List<Candidate> joinable(Predicate<String> servedBy, long most) {
    long maxFileSize = rules.options().maxFileSize();
    List<MergedFile> small =
        index.files().stream()
            .filter(file -> file.size() <= SizeTiers.largest(maxFileSize))
            .filter(file -> mayBeMovedOut(file) && index.referenceCount(file) > 0)
            .toList();
    for (List<MergedFile> tier : SizeTiers.crowded(small, MergedFile::size)) {
      List<Candidate> found = new ArrayList<>();
      long bytes = 0;
      for (MergedFile file : tier) {
        Candidate candidate = candidate(file, servedBy);
        if (!candidate.segments().isEmpty() && bytes + candidate.bytes() <= most) {
          found.add(candidate);
          bytes += candidate.bytes();
        }
      }
      if (found.size() >= SizeTiers.RATIO) {
        return found;
      }
    }
    return List.of();
  }

  private boolean mayBeMovedOut(MergedFile file) {
    return rules.isClosed(file) && file.wholeIndexRead() && canBeReclaimed(file);
  }

  private Candidate candidate(MergedFile file, Predicate<String> servedBy) {
    List<Segment> live = index.liveSegments(file);
    List<Segment> own = own(live, servedBy);
    return new Candidate(file, own, file.size(), bytes(own), bytes(live));
  }

  private static List<Segment> own(List<Segment> live, Predicate<String> servedBy) {
    return live.stream().filter(s -> servedBy.test(s.path()) && s.mayBeCopied()).toList();
  }

  private static long bytes(List<Segment> segments) {
    return segments.stream().mapToLong(Segment::lengthWithEntries).sum();
  }
}
