package io.pyspark.statestore.clean;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Tombstone;
import io.pyspark.statestore.index.TombstoneUse;
import io.pyspark.statestore.learn.Learning;
import io.pyspark.statestore.learn.Pins;
import io.pyspark.statestore.learn.Refresher;
import io.pyspark.statestore.learn.RelocationMarkers;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.write.PendingTombstones;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Unlinks merged files in which nothing lives (rule 6), and has the {@link Relocator} move live segments out of those
 * in which little does. One pass runs at a time, and no commit waits for it.
 */
public final class Cleaner {
  private static final Logger LOG = LoggerFactory.getLogger(Cleaner.class);
  private static final long MAX_INTERVAL_MS = 10_000;

  /**
   * Passes may follow each other so closely while much garbage can go; less closely after passes that freed nothing.
   */
  private static final long PRESSING_INTERVAL_MS = 250;

  /**
   * Spark deletes one partition's old versions after the other's. Segments are moved when that is over, because what is
   * moved before may be deleted a moment later.
   */
  private static final long QUIET_MS = 100;

  /** Where it is never over, urgent moves wait only so long. */
  private static final long NEVER_QUIET_MS = 3_000;

  /** Deletions wait so long for the pass that frees what they have killed; then they go with any group. */
  private static final long HOLD_BACK_MS = 500;

  /** A pass unlinks at most so many files: a backlog of days must not keep a maintenance thread for minutes. */
  private static final int MAX_UNLINKS = 256;

  /** A pass is due so often by itself, where this process cleans for all others. */
  private volatile long intervalForAllMs = NOT_KNOWN;

  private static final long NOT_KNOWN = Long.MIN_VALUE;

  /** Says when passes come by themselves. */
  public static class Pace {
    /** The pace of all logs of this process. */
    public static volatile Pace current = new Pace();

    /** Whether a pass may begin. */
    public boolean isDue(long sinceLastMs, long intervalMs, BooleanSupplier isPressing) {
      return sinceLastMs >= intervalMs || isPressing.getAsBoolean();
    }

    /** Whether deletions wait for a pass that is near. */
    public boolean holdsDeletionsBack(boolean passIsNear) {
      return passIsNear;
    }
  }

  private final Storage storage;
  private final Index index;
  private final Rules rules;
  private final LogMetrics metrics;
  private final long writerId;
  private final PendingTombstones tombstones;
  private final Refresher refresher;
  private final RelocationMarkers markers;
  private final Pins pins;
  private final SourcePins sourcePins;
  private final Garbage garbage;
  private final Relocator relocator;
  private final Consolidation consolidation;
  private final DurableTombstones writer;
  private final Consumer<MergedFile> forget;
  private final ReentrantLock running = new ReentrantLock();
  private volatile boolean consolidates;
  private volatile long pressingIntervalMs = PRESSING_INTERVAL_MS;
  private volatile long unpromisingGarbage = NOT_KNOWN;
  private volatile long lastRunNanos = System.nanoTime() - 2 * MAX_INTERVAL_MS * 1_000_000;

  /**
   * @param forget removes a file that is gone from the index, and closes what is open of it
   */
  Cleaner(
      Storage storage,
      Index index,
      Rules rules,
      LogMetrics metrics,
      long writerId,
      PendingTombstones tombstones,
      Learning learning,
      SourcePins sourcePins,
      Garbage garbage,
      Relocator relocator,
      Consolidation consolidation,
      DurableTombstones writer,
      Consumer<MergedFile> forget) {
    this.storage = storage;
    this.index = index;
    this.rules = rules;
    this.metrics = metrics;
    this.writerId = writerId;
    this.tombstones = tombstones;
    this.refresher = learning.refresher();
    this.markers = learning.markers();
    this.pins = learning.pins();
    this.sourcePins = sourcePins;
    this.garbage = garbage;
    this.relocator = relocator;
    this.consolidation = consolidation;
    this.writer = writer;
    this.forget = forget;
  }

  /** Writes these tombstones and all that wait, and returns when they are durable. */
  interface DurableTombstones {
    void write(List<Tombstone> tombstones) throws IOException;
  }

  /** From now on passes write index-only files, or no longer: for a process that cleans for all others. */
  public void consolidates(boolean does) {
    consolidates = does;
  }

  /** From now on passes join small files where there are too many, or no longer. */
  public void joinsSmallFiles(boolean does) {
    garbage.joins(does);
  }

  // ---- when

  /**
   * This process is the only one that cleans, so it makes its passes by itself, whoever writes.
   *
   * @param intervalMs between two passes, each of which lists the directory
   */
  public void cleansForAll(long intervalMs) {
    intervalForAllMs = intervalMs;
  }

  /** Whether a pass of the only process that cleans is due. */
  public boolean isDueForAll() {
    return intervalForAllMs != NOT_KNOWN
        && Pace.current.isDue(sinceLastRunMs(), intervalForAllMs, () -> false)
        && hasMoreToDo();
  }

  /** Makes a pass, if the last one is long enough ago and none is running. */
  public void runIfDue() {
    if (isDue() && running.tryLock()) {
      try {
        if (isDue()) {
          if (intervalForAllMs != NOT_KNOWN) {
            cleanForAll(mayMove());
          } else {
            clean(refresher.mayReadTails(), mayMove());
          }
        }
      } finally {
        lastRunNanos = System.nanoTime();
        running.unlock();
      }
    }
  }

  private boolean isDue() {
    if (intervalForAllMs != NOT_KNOWN) {
      return isDueForAll();
    }
    return Pace.current.isDue(
        sinceLastRunMs(), Math.min(MAX_INTERVAL_MS, rules.options().idleSealMs()), this::isPressing);
  }

  private long sinceLastRunMs() {
    return (System.nanoTime() - lastRunNanos) / 1_000_000;
  }

  /** Whether there is too much garbage, and this process can probably reclaim some of it now. */
  public boolean isPressing() {
    if (intervalForAllMs != NOT_KNOWN || sinceLastRunMs() < pressingIntervalMs || !mayMove()) {
      return false;
    }
    long bytes = garbage.bytes();
    // Asked ten times a second, of an index that may be large. For the same garbage the answer is the same.
    if (bytes == unpromisingGarbage) {
      return false;
    }
    boolean promises = promisesMuch();
    unpromisingGarbage = promises ? NOT_KNOWN : bytes;
    return promises;
  }

  private boolean mayMove() {
    // A maintenance thread of Spark comes by right before it deletes.
    return isQuiet() && !Threads.isMaintenance() || sinceLastRunMs() >= NEVER_QUIET_MS && garbage.isUrgent();
  }

  /** Whether deletions wait for the next pass, which makes them durable together with what they free. */
  public boolean holdsDeletionsBack() {
    // Asked before every flush. Mostly no deletion waits.
    return Pace.current.holdsDeletionsBack(
        !tombstones.isEmpty()
            && !tombstones.haveWaited(HOLD_BACK_MS)
            && rules.options().compactionEnabled()
            && garbage.isMuch());
  }

  /** Whether a later pass may find something to do that this process knows of. */
  public boolean hasMoreToDo() {
    MergedFile newest = index.newest();
    return !tombstones.isEmpty()
        || markers.any()
        || index.files().stream().anyMatch(f -> f.writer() == MergedFile.Writer.OTHER)
        || index.filesWithoutLiveSegments().stream().anyMatch(f -> f != newest && !pins.hold(f));
  }

  private boolean isQuiet() {
    return tombstones.quietMs() >= QUIET_MS;
  }

  private boolean promisesMuch() {
    boolean compacts = rules.options().compactionEnabled();
    Garbage.Plan moves = garbage.plan();
    return garbage.isSome() && (!plan(rules.now()).steps().isEmpty() || compacts && moves.callsForMoving())
        || compacts && moves.callsForJoining();
  }

  // ---- what

  /** Makes a pass now; returns how many files it has unlinked. */
  public int run() {
    running.lock();
    try {
      if (intervalForAllMs != NOT_KNOWN) {
        long before = metrics.count(LogMetrics.Count.UNLINKED_FILES);
        cleanForAll(true);
        return (int) (metrics.count(LogMetrics.Count.UNLINKED_FILES) - before);
      }
      return clean(true, true);
    } finally {
      lastRunNanos = System.nanoTime();
      running.unlock();
    }
  }

  private int clean(boolean completely, boolean mayMove) {
    int gone = 0;
    boolean effective = !mayMove || !promisesMuch();
    MaintenanceReport report = new MaintenanceReport(storage.checkpoint(), index, metrics);
    try {
      if (completely) {
        TombstoneUse.prove(index, refresher.refresh(), rules::isClosed, markers::noneSince);
      } else {
        refresher.refreshListing();
      }
      markers.deleteExpired();
      pins.readAll();
      if (completely) {
        dropPins();
      }
      gone = unlinkDead();
      if (mayMove && rules.options().compactionEnabled() && relocator.run(garbage::plan)) {
        effective = true;
        gone += unlinkDead();
      }
      if (consolidates) {
        gone += unlinkUnpinned(consolidation.run());
      }
    } catch (IOException | RuntimeException e) {
      // Rule 8: when in doubt, delete nothing.
      LOG.warn(
          "The cleaning pass over {} stopped; the next maintenance tries again. What to do: if it goes on, mend"
              + " the cause; dead files stay until then",
          storage.checkpoint(),
          e);
      report.stopped();
    }
    pressingIntervalMs =
        effective || gone > 0 ? PRESSING_INTERVAL_MS : Math.min(2 * pressingIntervalMs, MAX_INTERVAL_MS);
    report.end();
    return gone;
  }

  /**
   * A pass of the only process that cleans, with one listing. What it plans and writes before that listing it unlinks
   * after it: the listing shows the pins, and a fork whose pin it does not show looks later than the plan.
   */
  private void cleanForAll(boolean mayMove) {
    MaintenanceReport report = new MaintenanceReport(storage.checkpoint(), index, metrics);
    try {
      List<MergedFile> planned = new ArrayList<>(planned());
      if (consolidates) {
        planned.addAll(consolidation.unneeded());
      }
      boolean complete = refresher.mayReadTails();
      long refresh = refresher.refreshForCleaning(complete);
      markers.deleteExpired();
      pins.readAll();
      Set<String> second = index.filesWithSecondPaths();
      unlink(
          planned,
          file ->
              index.file(file.name()) == file
                  && index.referenceCount(file) == 0
                  && !pins.hold(file)
                  && !second.contains(file.name()));
      if (complete) {
        long settled = Math.min(reportedSince(), refresher.isPaged() ? refresh - 1 : refresh);
        TombstoneUse.prove(index, refresh, rules::isClosed, since -> since <= settled && markers.noneSince(since));
        dropPins();
      }
      if (mayMove && rules.options().compactionEnabled()) {
        relocator.run(garbage::plan);
      }
      if (consolidates) {
        // What it makes unneeded goes with the next pass.
        consolidation.run();
      }
    } catch (IOException | RuntimeException e) {
      // Rule 8: when in doubt, delete nothing.
      LOG.warn(
          "The cleaning pass over {} stopped; the next one tries again. What to do: if it goes on, mend the"
              + " cause; dead files stay until then",
          storage.checkpoint(),
          e);
      report.stopped();
    }
    report.end();
  }

  /**
   * Number of a refresh since whose beginning the writer of each file that others have open has reported. A report that
   * was under way then has come. A file that nobody appends to any more is sealed, which is reported, too.
   */
  private long reportedSince() {
    return index.files().stream()
        .filter(file -> file.isReported() && file.writer() == MergedFile.Writer.OTHER)
        .mapToLong(MergedFile::changedIn)
        .min()
        .orElse(Long.MAX_VALUE);
  }

  /**
   * Drops the checkpoint's own pins that nothing needs any more, and those that it has elsewhere, after a complete
   * refresh. What is dead only by deletions that no other process can read may come back, so they have to be durable a
   * pass later. Bytes that nobody understands may be what says that a file is needed.
   */
  private void dropPins() throws IOException {
    if (pins.anyOldOwn()
        && tombstones.areDurable(tombstones.count())
        && index.files().stream().allMatch(MergedFile::isAccounted)) {
      pins.dropOwn(index.filesWithSecondPaths());
    }
    sourcePins.letGo();
  }

  private int unlinkDead() throws IOException {
    return unlinkUnpinned(planned());
  }

  /** What may be unlinked once the pins are known: all that is needed of it is durable elsewhere. */
  private List<MergedFile> planned() throws IOException {
    Clocks.Moment now = rules.now();
    long deletions = tombstones.count();
    index.files().forEach(f -> f.dead(index.referenceCount(f) == 0, now));
    UnlinkPlan plan = plan(now);
    if (plan.steps().isEmpty()) {
      return List.of();
    }
    // A file that is dead only by deletions which no other process can read would come back if this process died now.
    if (!tombstones.areDurable(deletions)) {
      writer.write(List.of());
    }
    if (!tombstones.areDurable(deletions)) {
      return List.of();
    }
    List<Tombstone> needed = plan.steps().stream().flatMap(step -> step.carryOver().stream()).toList();
    if (!needed.isEmpty()) {
      writer.write(needed);
      metrics.carriedOver(needed.size());
    }
    return plan.steps().stream().map(UnlinkPlan.Step::file).toList();
  }

  /** Unlinks files, once all that shows that nobody needs them is durable. */
  private int unlinkUnpinned(List<MergedFile> unneeded) throws IOException {
    if (unneeded.isEmpty()) {
      return 0;
    }
    // Last: a fork whose pin this does not show looks later than all that was concluded and written above.
    Pins.Held pinned = pins.now();
    // An own pin that was emptied looks like one that has expired.
    Set<String> second = index.filesWithSecondPaths();
    // Asked again: another thread may have found meanwhile that a copy elsewhere is gone.
    return unlink(
        unneeded, file -> index.referenceCount(file) == 0 && !pinned.holds(file) && !second.contains(file.name()));
  }

  private UnlinkPlan plan(Clocks.Moment now) {
    Responsibility responsibility = new Responsibility(index, rules, writerId);
    return UnlinkPlan.of(
        index,
        rules,
        f -> !pins.hold(f) && (intervalForAllMs != NOT_KNOWN || responsibility.isMine(f)),
        f -> now.monotonicMs() - f.deadSinceMs() < rules.options().idleSealMs(),
        MAX_UNLINKS);
  }

  /**
   * Unlinks files of which it is true right before that nobody needs them; so many at once as one request deletes. A
   * file that cannot be unlinked stays in the index as dead, so the next pass tries again.
   */
  private int unlink(List<MergedFile> files, Predicate<MergedFile> isUnneeded) {
    int unlinked = 0;
    int atOnce = storage.deletedAtOnce();
    for (int begin = 0; begin < files.size(); begin += atOnce) {
      List<MergedFile> page =
          files.subList(begin, Math.min(files.size(), begin + atOnce)).stream().filter(isUnneeded).toList();
      Map<String, Exception> failed = storage.deleteAll(page.stream().map(MergedFile::name).toList());
      for (MergedFile file : page) {
        Exception why = failed.get(file.name());
        if (why == null) {
          metrics.unlinked();
          forget.accept(file);
          unlinked++;
        } else {
          metrics.deleteFailed();
          LOG.warn(
              "Could not unlink {} of {}; the next pass tries again. What to do: if it goes on, let this"
                  + " process's user delete there",
              file,
              storage.checkpoint(),
              why);
        }
      }
    }
    return unlinked;
  }
}
