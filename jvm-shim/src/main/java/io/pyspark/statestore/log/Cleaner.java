package io.pyspark.statestore.log;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Unlinks merged files in which nothing lives (rule 6), and has the {@link Relocator} move live segments out of those
 * in which little does. One pass runs at a time, and no commit waits for it.
 */
final class Cleaner {
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

  private static final long NOT_KNOWN = Long.MIN_VALUE;

  /** Says when passes come by themselves. */
  static class Pace {
    /** The pace of all logs of this process. */
    static volatile Pace current = new Pace();

    /** Whether a pass may begin. */
    boolean isDue(long sinceLastMs, long intervalMs, BooleanSupplier isPressing) {
      return sinceLastMs >= intervalMs || isPressing.getAsBoolean();
    }

    /** Whether deletions wait for a pass that is near. */
    boolean holdsDeletionsBack(boolean passIsNear) {
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
  private final Garbage garbage;
  private final Relocator relocator;
  private final DurableTombstones writer;
  private final Consumer<MergedFile> forget;
  private final ReentrantLock running = new ReentrantLock();
  private volatile long pressingIntervalMs = PRESSING_INTERVAL_MS;
  private volatile long unpromisingGarbage = NOT_KNOWN;
  private volatile long lastRunNanos = System.nanoTime() - 2 * MAX_INTERVAL_MS * 1_000_000;

  /** @param forget removes a file that is gone from the index, and closes what is open of it */
  Cleaner(
      Storage storage,
      Index index,
      Rules rules,
      LogMetrics metrics,
      long writerId,
      PendingTombstones tombstones,
      Refresher refresher,
      RelocationMarkers markers,
      Pins pins,
      Garbage garbage,
      Relocator relocator,
      DurableTombstones writer,
      Consumer<MergedFile> forget) {
    this.storage = storage;
    this.index = index;
    this.rules = rules;
    this.metrics = metrics;
    this.writerId = writerId;
    this.tombstones = tombstones;
    this.refresher = refresher;
    this.markers = markers;
    this.pins = pins;
    this.garbage = garbage;
    this.relocator = relocator;
    this.writer = writer;
    this.forget = forget;
  }

  /** Writes these tombstones and all that wait, and returns when they are durable. */
  interface DurableTombstones {
    void write(List<Tombstone> tombstones) throws IOException;
  }

  // ---- when

  /** Makes a pass, if the last one is long enough ago and none is running. */
  void runIfDue() {
    if (isDue() && running.tryLock()) {
      try {
        if (isDue()) {
          clean(refresher.mayReadTails(), mayMove());
        }
      } finally {
        lastRunNanos = System.nanoTime();
        running.unlock();
      }
    }
  }

  private boolean isDue() {
    return Pace.current.isDue(
        sinceLastRunMs(), Math.min(MAX_INTERVAL_MS, rules.options().idleSealMs()), this::isPressing);
  }

  private long sinceLastRunMs() {
    return (System.nanoTime() - lastRunNanos) / 1_000_000;
  }

  /** Whether there is too much garbage, and this process can probably reclaim some of it now. */
  boolean isPressing() {
    if (sinceLastRunMs() < pressingIntervalMs || !mayMove()) {
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
    return isQuiet() && !MergedLog.isMaintenanceThread()
        || sinceLastRunMs() >= NEVER_QUIET_MS && garbage.isUrgent();
  }

  /** Whether deletions wait for the next pass, which makes them durable together with what they free. */
  boolean holdsDeletionsBack() {
    // Asked before every flush. Mostly no deletion waits.
    return Pace.current.holdsDeletionsBack(
        !tombstones.isEmpty()
            && !tombstones.haveWaited(HOLD_BACK_MS)
            && rules.options().compactionEnabled()
            && garbage.isMuch());
  }

  /** Whether a later pass may find something to do that this process knows of. */
  boolean hasMoreToDo() {
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
    return garbage.isSome()
        && (!plan(rules.now()).steps().isEmpty() || rules.options().compactionEnabled() && garbage.callsForMoving());
  }

  // ---- what

  /** Makes a pass now; returns how many files it has unlinked. */
  int run() {
    running.lock();
    try {
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
        index.proveTombstones(refresher.refresh(), rules::isClosed, markers::noneSince);
      } else {
        refresher.refreshListing();
      }
      markers.deleteExpired();
      pins.readAll();
      gone = unlinkDead();
      if (mayMove && rules.options().compactionEnabled() && relocator.run()) {
        effective = true;
        gone += unlinkDead();
      }
    } catch (IOException | RuntimeException e) {
      // Rule 8: when in doubt, delete nothing.
      LOG.warn("The cleaning pass over {} stopped; the next maintenance tries again", storage.checkpoint(), e);
      report.stopped();
    }
    pressingIntervalMs =
        effective || gone > 0 ? PRESSING_INTERVAL_MS : Math.min(2 * pressingIntervalMs, MAX_INTERVAL_MS);
    report.end();
    return gone;
  }

  private int unlinkDead() throws IOException {
    Clocks.Moment now = rules.now();
    long deletions = tombstones.count();
    index.files().forEach(f -> f.dead(index.referenceCount(f) == 0, now));
    UnlinkPlan plan = plan(now);
    if (plan.steps().isEmpty()) {
      return 0;
    }
    // A file that is dead only by deletions which no other process can read would come back if this process died now.
    if (!tombstones.areDurable(deletions)) {
      writer.write(List.of());
    }
    if (!tombstones.areDurable(deletions)) {
      return 0;
    }
    List<Tombstone> needed = plan.steps().stream().flatMap(step -> step.carryOver().stream()).toList();
    if (!needed.isEmpty()) {
      writer.write(needed);
      metrics.carriedOver(needed.size());
    }
    // Last: a fork whose pin this does not show looks later than all that was concluded and written above.
    Pins.Held pinned = pins.now();
    return (int) plan.steps().stream()
        // Asked again: another thread may have found meanwhile that a copy elsewhere is gone.
        .filter(step -> index.referenceCount(step.file()) == 0)
        .filter(step -> !pinned.holds(step.file()) && unlink(step.file()))
        .count();
  }

  private UnlinkPlan plan(Clocks.Moment now) {
    Responsibility responsibility = new Responsibility(index, rules, writerId);
    return UnlinkPlan.of(
        index,
        rules,
        f -> !pins.hold(f) && responsibility.isMine(f),
        f -> now.monotonicMs() - f.deadSinceMs() < rules.options().idleSealMs(),
        MAX_UNLINKS);
  }

  /** A file that cannot be unlinked stays in the index as dead, so the next pass tries again. */
  private boolean unlink(MergedFile file) {
    try {
      storage.delete(file.name());
    } catch (IOException | RuntimeException e) {
      metrics.deleteFailed();
      LOG.warn("Could not unlink {} of {}; the next pass tries again", file, storage.checkpoint(), e);
      return false;
    }
    metrics.unlinked();
    forget.accept(file);
    return true;
  }
}
