package io.pyspark.statestore.log;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Unlinks merged files in which nothing lives (rule 6), and has live segments moved out of those in which little does.
 * Runs on Spark's maintenance threads, at most once per interval and process, and holds no lock that a commit needs.
 */
final class Cleaner {
  private static final Logger LOG = LoggerFactory.getLogger(Cleaner.class);
  private static final long MAX_INTERVAL_MS = 10_000;
  /** Where there is much garbage that can go, cleaning waits only so long; longer after rounds that failed to do it. */
  private static final long PRESSING_INTERVAL_MS = 250;
  /**
   * Spark deletes one partition's old versions after the other's. Segments are moved when that is over: what is moved
   * before may be deleted a moment later.
   */
  private static final long QUIET_MS = 100;
  /** Where it never is over, urgent moves wait only so long. */
  private static final long NEVER_QUIET_MS = 3_000;
  /** For so long deletions wait for the round that frees what they have killed; then they ride in any group. */
  private static final long HOLD_BACK_MS = 500;
  /** Files that one round unlinks at most: what has piled up for days must not keep a maintenance thread for minutes. */
  private static final int MAX_UNLINKS = 256;

  private static final long NOT_KNOWN = Long.MIN_VALUE;

  private final LogContext context;
  private final Refresher refresher;
  private final RelocationMarkers markers;
  private final Pins pins;
  private final DurableTombstones writer;
  private final Relocator relocator;
  private final Consumer<MergedFile> onGone;
  private final ReentrantLock running = new ReentrantLock();
  private volatile long pressingIntervalMs = PRESSING_INTERVAL_MS;
  private volatile long unpromisingGarbage = NOT_KNOWN;
  private volatile long lastRunNanos = System.nanoTime() - 2 * MAX_INTERVAL_MS * 1_000_000;

  Cleaner(
      LogContext context,
      Refresher refresher,
      RelocationMarkers markers,
      Pins pins,
      Relocator relocator,
      DurableTombstones writer,
      Consumer<MergedFile> onGone) {
    this.context = context;
    this.markers = markers;
    this.pins = pins;
    this.relocator = relocator;
    this.refresher = refresher;
    this.onGone = onGone;
    this.writer = writer;
  }

  /** Writes tombstones and returns when they are durable. */
  interface DurableTombstones {
    void write(List<Tombstone> tombstones) throws IOException;
  }

  /** Cleans where the last time is long enough ago and nobody else is at it. */
  void runIfDue() {
    if (isDue() && running.tryLock()) {
      try {
        if (isDue()) {
          // A maintenance thread asks before it deletes.
          clean(refresher.mayReadTails(), mayMove());
        }
      } finally {
        lastRunNanos = System.nanoTime();
        running.unlock();
      }
    }
  }

  private boolean isDue() {
    return MergedLogs.cleanByThemselves()
        && (sinceLastRunMs() >= Math.min(MAX_INTERVAL_MS, context.options().idleSealMs()) || isPressing());
  }

  private long sinceLastRunMs() {
    return (System.nanoTime() - lastRunNanos) / 1_000_000;
  }

  /** Whether there is too much garbage, and this process can probably do something about it now. */
  boolean isPressing() {
    if (sinceLastRunMs() < pressingIntervalMs || !mayMove()) {
      return false;
    }
    long garbage = relocator.garbage();
    // Asked ten times a second, of an index that may be large: the answer for so much garbage is known.
    if (garbage == unpromisingGarbage) {
      return false;
    }
    boolean promises = promisesMuch();
    unpromisingGarbage = promises ? NOT_KNOWN : garbage;
    return promises;
  }

  private boolean mayMove() {
    return isQuiet() && !MaintenanceThreads.isCurrent()
        || sinceLastRunMs() >= NEVER_QUIET_MS && relocator.isUrgent();
  }

  /** Whether the next round is near, because of deletions that are still going on or have just ended. */
  boolean comesSoon() {
    // Asked before every flush: mostly nothing waits.
    return MergedLogs.cleanByThemselves()
        && !context.tombstones().isEmpty()
        && !context.tombstones().haveWaited(HOLD_BACK_MS)
        && context.options().compactionEnabled()
        && relocator.hasMuchGarbage();
  }

  /** Whether a later round may find something to do that this process knows of. */
  boolean hasMoreToDo() {
    MergedFile newest = context.index().newest();
    return !context.tombstones().isEmpty()
        || markers.any()
        || context.index().files().stream().anyMatch(f -> f.writer() == MergedFile.Writer.OTHER)
        || context.index().filesWithoutLiveSegments().stream().anyMatch(f -> f != newest && !pins.hold(f));
  }

  private boolean isQuiet() {
    return context.tombstones().quietMs() >= QUIET_MS;
  }

  private boolean promisesMuch() {
    return relocator.hasSomeGarbage()
        && (!plan(context.now()).steps().isEmpty() || context.options().compactionEnabled() && relocator.isNeeded());
  }

  /** Cleans now; how many files went. */
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
    boolean kept = !mayMove || !promisesMuch();
    MaintenanceReport report = MaintenanceReport.begin(context);
    try {
      if (completely) {
        context.index().proveTombstones(refresher.refresh(), context::isClosed, markers::noneSince);
      } else {
        refresher.refreshListing();
      }
      markers.removeLeftOver();
      pins.readAll();
      gone = unlinkDead();
      if (mayMove && context.options().compactionEnabled() && relocator.run()) {
        kept = true;
        gone += unlinkDead();
      }
    } catch (IOException | RuntimeException e) {
      // Rule 8: when in doubt, delete nothing.
      LOG.warn("Cleaning of {} stopped; it is tried again at the next maintenance", context.checkpoint(), e);
      report.stopped();
    }
    pressingIntervalMs = kept || gone > 0 ? PRESSING_INTERVAL_MS : Math.min(2 * pressingIntervalMs, MAX_INTERVAL_MS);
    report.end();
    return gone;
  }

  private int unlinkDead() throws IOException {
    Clocks.Moment now = context.now();
    long deletions = context.tombstones().count();
    context.index().files().forEach(f -> f.dead(context.index().referenceCount(f) == 0, now));
    UnlinkPlan plan = plan(now);
    if (plan.steps().isEmpty()) {
      return 0;
    }
    // What is dead only by a deletion that nobody could read yet would come back if this process died now.
    if (!context.tombstones().areDurable(deletions)) {
      writer.write(List.of());
    }
    if (!context.tombstones().areDurable(deletions)) {
      return 0;
    }
    List<Tombstone> needed = plan.steps().stream().flatMap(step -> step.carryOver().stream()).toList();
    if (!needed.isEmpty()) {
      writer.write(needed);
      context.metrics().carriedOver(needed.size());
    }
    // Last: a fork that this does not show looks later than all that was concluded and written above.
    Pins.Held pinned = pins.now();
    return (int) plan.steps().stream().filter(step -> !pinned.holds(step.file()) && unlink(step.file())).count();
  }

  private UnlinkPlan plan(Clocks.Moment now) {
    Responsibility responsibility = new Responsibility(context);
    return UnlinkPlan.of(
        context.index(),
        f -> context.isClosed(f) && f.wholeIndexRead() && f.isAccounted() && isUseless(f) && !pins.hold(f)
            && responsibility.isMine(f),
        f -> now.monotonicMs() - f.deadSinceMs() < context.options().idleSealMs(),
        MAX_UNLINKS);
  }

  /** Whether nobody reads a file for what it repeats of others. */
  private boolean isUseless(MergedFile file) {
    return !file.isIndexOnly() || file.covered().stream().noneMatch(name -> context.index().file(name) != null);
  }

  /** A file that cannot be unlinked stays in the index as dead, so the next round tries it again. */
  private boolean unlink(MergedFile file) {
    try {
      context.storage().delete(file.name());
    } catch (IOException | RuntimeException e) {
      context.metrics().deleteFailed();
      LOG.warn("{} of {} could not be unlinked and is tried again", file, context.checkpoint(), e);
      return false;
    }
    context.metrics().unlinked();
    context.index().remove(file);
    onGone.accept(file);
    return true;
  }
}
