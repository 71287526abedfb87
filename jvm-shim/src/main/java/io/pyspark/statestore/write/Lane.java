package io.pyspark.statestore.write;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.index.Tombstone;
import io.pyspark.statestore.metrics.LogMetrics;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One open merged file that this process appends to, and the queue of commits for it.
 *
 * <p>Group commit: commits that come while a group is written and flushed wait in the queue. The next group takes them
 * all, writes their payloads, one index block and one trailer, and flushes once. The caller that finds the lane free
 * leads: it writes one group itself, which saves a change of threads, and leaves the commits that came meanwhile to a
 * thread of the pool. If the leader's task is killed, only its own commit fails; the others of its group are written
 * again.
 */
public final class Lane {
  /** No file stays open for longer, so others may count one that was modified a day ago as closed (rule 7). */
  private static final long MAX_AGE_MS = 3_600_000;

  private static final Logger LOG = LoggerFactory.getLogger(Lane.class);

  /** Made beforehand, for when there is no memory to say more. */
  private static final IOException NOT_WRITTEN =
      new IOException("The commit was not written, because the thread that was to write it failed");

  private final OpenFile.Factory files;
  private final CommitWindow window;
  private final PendingTombstones tombstones;
  private final LogMetrics metrics;
  private final BooleanSupplier holdsDeletionsBack;
  private final LongSupplier fileSize;
  private final Executor executor;

  /** Held while the open file is used, never while a payload is collected. */
  private final ReentrantLock io = new ReentrantLock();

  private final Deque<Commit> queue = new ArrayDeque<>();
  private boolean draining;
  private volatile OpenFile open;

  /**
   * @param holdsDeletionsBack whether the tombstones that wait are left to a cleaning pass that is near
   * @param fileSize bytes after which an open file is sealed
   * @param executor writes the groups of commits that wait
   */
  Lane(
      OpenFile.Factory files,
      CommitWindow window,
      PendingTombstones tombstones,
      LogMetrics metrics,
      BooleanSupplier holdsDeletionsBack,
      LongSupplier fileSize,
      Executor executor) {
    this.files = files;
    this.window = window;
    this.tombstones = tombstones;
    this.metrics = metrics;
    this.holdsDeletionsBack = holdsDeletionsBack;
    this.fileSize = fileSize;
    this.executor = executor;
  }

  private Options options() {
    return files.rules().options();
  }

  boolean isBusy() {
    synchronized (queue) {
      return draining;
    }
  }

  /** Whether it has a file open, or is about to. */
  boolean isOpen() {
    return isBusy() || open != null;
  }

  int waiting() {
    synchronized (queue) {
      return queue.size();
    }
  }

  /**
   * Queues a commit. {@link Commit#await()} returns when it is durable.
   *
   * @return whether the caller has to {@link #lead}
   */
  boolean submit(Commit commit) {
    boolean lead;
    synchronized (queue) {
      queue.add(commit);
      lead = !draining;
      draining = true;
    }
    window.arrived();
    return lead;
  }

  /** Writes commits as one group, for which no others are waited for. {@link Commit#await()} says what became of it. */
  public void writeTogether(List<Commit> commits) {
    boolean lead;
    synchronized (queue) {
      queue.addAll(commits);
      lead = !draining;
      draining = true;
    }
    boolean isDone = false;
    try {
      while (lead && !endsHere()) {
        writeGroup(null);
      }
      isDone = true;
    } finally {
      stopsLeading(isDone);
    }
  }

  /** Whatever has ended the leader before its work was done: nobody else leads, so all that wait hear of it. */
  private void stopsLeading(boolean isDone) {
    if (isDone) {
      return;
    }
    synchronized (queue) {
      for (Commit commit = queue.poll(); commit != null; commit = queue.poll()) {
        if (commit.startWriting()) {
          commit.fail(NOT_WRITTEN);
        }
      }
      draining = false;
    }
  }

  /**
   * Writes the group of the caller's commit in the caller's thread, and has the commits that wait behind it written.
   * Where the group may be a file of its own, a thread of the pool writes it, too: nobody interrupts that thread, and
   * S3A's {@code close()} returns from an interrupt as if the file were there.
   */
  void lead(Commit own) {
    boolean isDone = false;
    try {
      if (!mayCloseFile()) {
        awaitOthers();
        // A killed task takes its commit back while it is still queued. Others may wait behind it.
        if (!Thread.currentThread().isInterrupted()) {
          writeGroup(own);
        }
      }
      while (!endsHere() && !handOver()) {
        serveOthers();
      }
      isDone = true;
    } finally {
      stopsLeading(isDone);
    }
  }

  /** Whether the next group may have to be closed to become durable. Before a file is open, nobody knows. */
  private boolean mayCloseFile() {
    OpenFile now = open;
    return files.storage().isObjectStore() && (now == null || !now.canFlush());
  }

  /** Whether no commit waits, so that the next one that comes leads. */
  private boolean endsHere() {
    synchronized (queue) {
      draining = !queue.isEmpty();
      return !draining;
    }
  }

  /** Leaves the commits that wait to a thread of the pool; returns false where no thread can be started. */
  private boolean handOver() {
    try {
      executor.execute(this::drain);
      return true;
    } catch (RuntimeException | Error e) {
      // A process at its limit of threads has an OutOfMemoryError here.
      LOG.info(
          "Could not start a thread for waiting commits of {}; the current thread writes them",
          files.storage().checkpoint(),
          e);
      return false;
    }
  }

  /** Writes one group for others. An interrupt of this thread must not fail it. */
  private void serveOthers() {
    boolean interrupted = Thread.interrupted();
    try {
      writeGroup(null);
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Writes groups until no commit waits. */
  private void drain() {
    boolean isDone = false;
    try {
      while (!endsHere()) {
        awaitOthers();
        writeGroup(null);
      }
      isDone = true;
    } finally {
      stopsLeading(isDone);
    }
  }

  private void writeGroup(Commit leader) {
    List<Commit> group = new ArrayList<>();
    io.lock();
    try {
      nextGroup(group);
      write(group, leader);
    } catch (RuntimeException | Error e) {
      fail(group, e);
    } finally {
      io.unlock();
    }
  }

  /** No caller may wait for ever, whatever went wrong, and even if there is no memory to say what. */
  private static void fail(List<Commit> group, Throwable e) {
    IOException failure = NOT_WRITTEN;
    try {
      failure = new IOException(e);
    } finally {
      for (Commit commit : group) {
        commit.fail(failure);
      }
    }
  }

  private void awaitOthers() {
    try {
      window.await(this::queued);
    } catch (RuntimeException | Error e) {
      // The window only saves flushes. The leader has to write, or all wait for ever.
      LOG.info("Commits of {} do not wait for others", files.storage().checkpoint(), e);
    }
  }

  private List<Commit> queued() {
    synchronized (queue) {
      return new ArrayList<>(queue);
    }
  }

  /** Moves all that wait into a group, up to the size of a file. Each is in one of the two at any moment. */
  private void nextGroup(List<Commit> group) {
    synchronized (queue) {
      long bytes = 0;
      while (!queue.isEmpty() && (group.isEmpty() || bytes + queue.peek().length() <= options().maxFileSize())) {
        Commit commit = queue.peek();
        group.add(commit);
        queue.remove();
        if (commit.startWriting()) {
          bytes += commit.length();
        } else {
          group.remove(group.size() - 1);
        }
      }
    }
  }

  private void write(List<Commit> group, Commit leader) {
    boolean asked = group.isEmpty() || group.stream().anyMatch(Commit::isForTombstones);
    List<Tombstone> deletions = asked || !holdsDeletionsBack.getAsBoolean() ? tombstones.take() : List.of();
    if (group.isEmpty() && deletions.isEmpty()) {
      return;
    }
    long startedNanos = System.nanoTime();
    boolean killed = false;
    boolean beganFile = false;
    Reporter.Receipt report;
    try {
      forgetIfGone();
      awaitLastReport();
      sealIfIdle();
      if (open == null) {
        open = files.create();
        beganFile = true;
        window.groupsAreFiles(!open.canFlush());
      }
      open.beginGroup(group, deletions);
      List<Entry> entries = new ArrayList<>();
      boolean isShorter = false;
      for (Iterator<Commit> commits = group.iterator(); commits.hasNext(); ) {
        Commit commit = commits.next();
        if (!append(commit, commit == leader, entries)) {
          commits.remove();
          isShorter = true;
        }
      }
      // A killed leader's own commit is out of the group. Its interrupt must not fail the others' flush.
      killed = leader != null && leader.isWithdrawn() && Thread.interrupted();
      deletions.forEach(t -> entries.add(t.toEntry()));
      if (isShorter && open.isMuchTooShort(entries)) {
        // What was taken back was large, so the commits that are left are written again in another file.
        tombstones.giveBack(deletions);
        leave();
        requeue(group, null);
        return;
      }
      if (entries.isEmpty()) {
        // A commit came for tombstones that another lane is writing already.
        open.endEmptyGroup();
        if (beganFile) {
          // No listing shows it before its first group, so none would show that it is gone, with its checkpoint.
          open.discard();
          open = null;
        }
        group.forEach(Commit::done);
        return;
      }
      report = open.commit(entries, options().hsync() || group.stream().anyMatch(Commit::allowsUnlink));
      if (!deletions.isEmpty() || group.stream().anyMatch(Commit::allowsUnlink)) {
        // No task stands behind it that could fail later.
        report.await();
      }
    } catch (IOException | RuntimeException | Error e) {
      tombstones.giveBack(deletions);
      metrics.groupFailed();
      IOException failure = writeFailed(e);
      leave();
      if (leader != null && wasInterrupted(e)) {
        requeue(group, leader);
        leader.fail(failure);
      } else {
        group.forEach(c -> c.fail(failure));
      }
      return;
    } finally {
      if (killed) {
        Thread.currentThread().interrupt();
      }
    }
    tombstones.written(deletions);
    metrics.groupWritten(group.stream().map(Commit::figures).toList(), beganFile, System.nanoTime() - startedNanos);
    group.forEach(c -> c.done(report));
    sealIfFull();
  }

  /** Nothing may be appended to a file before the report of its last group has come. */
  private void awaitLastReport() throws IOException {
    if (open != null) {
      try {
        open.lastReport().await();
      } catch (IOException e) {
        if (wasInterrupted(e)) {
          throw e;
        }
      }
      leaveIfUnreported();
      sealIfFull();
    }
  }

  /**
   * Waits until the group of a commit that is durable is reported.
   *
   * @throws IOException where it is not. The file is left then, so that nothing is appended to it
   */
  public void awaitReport(Commit commit) throws IOException {
    long beganNanos = System.nanoTime();
    try {
      commit.report().await();
    } catch (IOException e) {
      if (wasInterrupted(e)) {
        throw e;
      }
      io.lock();
      try {
        leaveIfUnreported();
      } finally {
        io.unlock();
      }
      // A new one for each task that waits, as for a group that failed.
      throw new IOException(e.getMessage(), e);
    } finally {
      metrics.waitedForReport(System.nanoTime() - beganNanos);
    }
  }

  /** A report that fails is like a flush that fails: nobody can say whether the group counts. */
  private void leaveIfUnreported() {
    if (open != null && open.lastReport().isFailed()) {
      metrics.groupFailed();
      leave();
    }
  }

  /** Appends one commit's payloads; returns false where it was withdrawn meanwhile and will not become visible. */
  private boolean append(Commit commit, boolean isOwn, List<Entry> entries) throws IOException {
    int before = entries.size();
    try {
      for (Commit.Item item : commit.items()) {
        entries.add(
            open.append(
                item,
                () -> {
                  if (isOwn && Thread.currentThread().isInterrupted()) {
                    commit.withdraw();
                  }
                  return commit.isWithdrawn();
                }));
      }
      if (commit.startFlushing()) {
        commit.tombstones().forEach(t -> entries.add(t.toEntry()));
        return true;
      }
    } catch (OpenFile.WithdrawnException e) {
      // What was written of it is garbage.
    }
    entries.subList(before, entries.size()).clear();
    commit.dropped();
    metrics.cancelled();
    return false;
  }

  private static boolean wasInterrupted(Throwable failure) {
    return Threads.saysInterrupted(failure) || Thread.currentThread().isInterrupted();
  }

  private void requeue(List<Commit> group, Commit leader) {
    synchronized (queue) {
      for (int i = group.size() - 1; i >= 0; i--) {
        Commit other = group.get(i);
        if (other != leader && other.writeAgain()) {
          queue.addFirst(other);
        }
      }
    }
  }

  private StateStoreFilesException writeFailed(Throwable cause) {
    String file = open == null ? "a new file in " + files.storage().directory() : open.path().toString();
    return new StateStoreFilesException(
        Id.PSS_WRITE_FAILED,
        "Writing "
            + file
            + " of checkpoint "
            + files.storage().checkpoint()
            + " failed: "
            + cause
            + ". No commit of this group was acknowledged, nothing earlier is affected; Spark retries the tasks."
            + " Check permissions, quota and free space of the file system.",
        cause);
  }

  /** Rule 7: other processes may already count a file as closed that was left alone for too long. */
  private void sealIfIdle() {
    if (open != null && open.idleMs() > options().idleSealMs()) {
      seal();
    }
  }

  private void sealIfFull() {
    if (open == null || open.lastReport().isUnderWay()) {
      // The next group comes here once the report has come, or the housekeeper does.
      return;
    }
    if (open.isFinished()) {
      open = null;
    } else if (open.size() >= fileSize.getAsLong() || open.ageMs() > MAX_AGE_MS) {
      seal();
    }
  }

  /** Seals the file if it was left alone for too long, or is too large for what lives by now. */
  void sealIfDue() {
    if (io.tryLock()) {
      try {
        forgetIfGone();
        leaveIfUnreported();
        if (open != null && !open.lastReport().isUnderWay()) {
          sealIfIdle();
          sealIfFull();
        }
      } finally {
        io.unlock();
      }
    }
  }

  /** Seals the open file, for a clean stop. */
  void sealNow() {
    io.lock();
    try {
      forgetIfGone();
      if (open != null) {
        seal();
      }
    } finally {
      io.unlock();
    }
  }

  private void seal() {
    try {
      // After so long others may have unlinked the file, so it stays as it is.
      if (open.idleMs() > options().closedAfterMs() / 2) {
        leave();
      } else {
        open.lastReport().await();
        open.seal();
      }
      open = null;
    } catch (IOException | RuntimeException | Error e) {
      LOG.info(
          "Could not seal {}; all its groups are durable, and it counts as closed after closedAfter", open.path(), e);
      leave();
    }
  }

  /** Writes the tombstones that wait, where no group came to take them along. */
  void writeTombstones() {
    io.lock();
    try {
      write(List.of(), null);
    } finally {
      io.unlock();
    }
  }

  /** Never appends to the file again, and leaves it unsealed (rule 1). */
  private void leave() {
    if (open != null) {
      open.leave();
      open = null;
    }
  }

  /** Forgets the open file: its checkpoint was deleted. */
  void abandon() {
    io.lock();
    try {
      leave();
    } finally {
      io.unlock();
    }
  }

  /**
   * Forgets the open file if a refresh has found its checkpoint deleted. The refresh itself tells no lane, because it
   * would have to wait for what is being written, perhaps with Spark's locks held.
   */
  private void forgetIfGone() {
    if (open != null && open.isForgotten()) {
      leave();
    }
  }
}
