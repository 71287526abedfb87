package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.format.Entry;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One open merged file that this process appends to, and the queue of commits for it.
 *
 * <p>Group commit: while one group is being written and flushed, whoever comes waits in the queue; the next group
 * takes them all, writes their payloads, one index block and one trailer, and flushes once. Whoever finds the lane free
 * leads: he writes one group himself, which costs no change of threads, and leaves those who came meanwhile to a thread
 * of the pool. The interrupt of a killed leader fails his own commit only: the others of his group are written again.
 */
final class Lane {
  /** No file is open for longer, so that one that was modified a day ago is nobody's any more (rule 7). */
  private static final long MAX_AGE_MS = 3_600_000;

  private static final Logger LOG = LoggerFactory.getLogger(Lane.class);

  private final LogContext context;
  private final Executor executor;
  /** Held while the open file is touched; never while a payload is collected. */
  private final ReentrantLock io = new ReentrantLock();

  private final Deque<Commit> queue = new ArrayDeque<>();
  private boolean draining;
  private OpenFile open;

  Lane(LogContext context, Executor executor) {
    this.context = context;
    this.executor = executor;
  }

  boolean isBusy() {
    synchronized (queue) {
      return draining;
    }
  }

  int waiting() {
    synchronized (queue) {
      return queue.size();
    }
  }

  /**
   * Queues a commit; {@link Commit#await()} tells when it is durable.
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
    context.commitWindow().arrived();
    return lead;
  }

  /** Writes one group, that of the caller's commit, in the caller's thread. */
  void lead(Commit own) {
    awaitWindow();
    // A killed task takes its commit back while it is still queued; others may wait behind it.
    if (!Thread.currentThread().isInterrupted()) {
      writeGroup(own);
    }
    while (!endsHere() && !handOver()) {
      serveOthers();
    }
  }

  /** Whether nobody waits, so that the next who comes leads. */
  private boolean endsHere() {
    synchronized (queue) {
      draining = !queue.isEmpty();
      return !draining;
    }
  }

  /** Leaves those who wait to a thread of the pool; false where there is none to be had. */
  private boolean handOver() {
    try {
      executor.execute(this::drain);
      return true;
    } catch (RuntimeException | Error e) {
      // A process at its limit of threads has an OutOfMemoryError here.
      LOG.warn("No thread for the commits of {} that wait; this one writes them", context.checkpoint(), e);
      return false;
    }
  }

  /** Writes one group for others, whom the interrupt of this thread does not concern. */
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

  /** Writes groups until nobody waits. */
  private void drain() {
    while (!endsHere()) {
      awaitWindow();
      writeGroup(null);
    }
  }

  private void writeGroup(Commit leader) {
    io.lock();
    List<Commit> group = List.of();
    try {
      group = nextGroup();
      write(group, leader);
    } catch (RuntimeException | Error e) {
      // Nobody may wait for ever, whatever went wrong.
      group.forEach(c -> c.fail(new IOException(e)));
    } finally {
      io.unlock();
    }
  }

  private void awaitWindow() {
    try {
      context.commitWindow().awaitFor(this::queued, context.options(), context::expectedPartitions);
    } catch (RuntimeException | Error e) {
      // CommitWindow only saves flushes; who leads has to write, or everybody waits for ever.
      LOG.warn("Commits of {} do not wait for others", context.checkpoint(), e);
    }
  }

  private List<Commit> queued() {
    synchronized (queue) {
      return new ArrayList<>(queue);
    }
  }

  /** All that wait, up to the size of a file. */
  private List<Commit> nextGroup() {
    List<Commit> group = new ArrayList<>();
    synchronized (queue) {
      long bytes = 0;
      while (!queue.isEmpty() && (group.isEmpty() || bytes + queue.peek().length() <= context.options().maxFileSize())) {
        Commit commit = queue.poll();
        if (commit.startWriting()) {
          group.add(commit);
          bytes += commit.length();
        }
      }
    }
    return group;
  }

  private void write(List<Commit> group, Commit leader) {
    boolean asked = group.isEmpty() || group.stream().anyMatch(Commit::isForTombstones);
    List<Tombstone> tombstones = asked || !context.cleansSoon() ? context.tombstones().take() : List.of();
    if (group.isEmpty() && tombstones.isEmpty()) {
      return;
    }
    long startedNanos = System.nanoTime();
    boolean killed = false;
    try {
      forgetIfGone();
      sealIfStale();
      if (open == null) {
        open = OpenFile.create(context);
        context.commitWindow().groupsAreFiles(!open.canFlush());
      }
      open.announce(group, tombstones);
      List<Entry> entries = new ArrayList<>();
      boolean isShorter = false;
      for (Iterator<Commit> commits = group.iterator(); commits.hasNext(); ) {
        Commit commit = commits.next();
        if (!append(commit, commit == leader, entries)) {
          commits.remove();
          isShorter = true;
        }
      }
      // A killed leader's own commit is out of it; the others' flush must not fail by his interrupt.
      killed = leader != null && leader.isWithdrawn() && Thread.interrupted();
      tombstones.forEach(t -> entries.add(t.toEntry()));
      if (isShorter && open.isMuchTooShort(entries)) {
        // What was taken back was large: those who are left are written again, in another file.
        context.tombstones().giveBack(tombstones);
        giveUp();
        requeue(group, null);
        return;
      }
      if (entries.isEmpty()) {
        // Who came for tombstones that wait finds that another lane is writing them.
        open.endEmptyGroup();
        group.forEach(Commit::done);
        return;
      }
      open.commit(entries, context.options().hsync() || group.stream().anyMatch(Commit::allowsUnlink));
    } catch (IOException | RuntimeException | Error e) {
      context.tombstones().giveBack(tombstones);
      context.metrics().groupFailed();
      IOException failure = writeFailed(e);
      giveUp();
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
    context.tombstones().written(tombstones);
    context.metrics().groupWritten(group, System.nanoTime() - startedNanos);
    group.forEach(Commit::done);
    sealIfFull();
  }

  /** Appends one commit's payloads; false where it was withdrawn meanwhile, and nothing of it will be visible. */
  private boolean append(Commit commit, boolean isOwn, List<Entry> entries) throws IOException {
    int before = entries.size();
    try {
      for (Commit.Item item : commit.items()) {
        entries.add(open.append(item, () -> {
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
    } catch (WithdrawnException e) {
      // What it has left in the file is garbage.
    }
    entries.subList(before, entries.size()).clear();
    commit.dropped();
    context.metrics().cancelled();
    return false;
  }

  private static boolean wasInterrupted(Throwable failure) {
    return saysInterrupted(failure) || Thread.currentThread().isInterrupted();
  }

  /** Whether a call failed because its thread was interrupted. */
  static boolean saysInterrupted(Throwable failure) {
    return failure instanceof InterruptedIOException || failure instanceof ClosedByInterruptException;
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
    String file = open == null ? "a new file in " + context.storage().directory() : open.path().toString();
    return new StateStoreFilesException(
        Id.PSS_WRITE_FAILED, "Writing " + file + " of checkpoint " + context.checkpoint() + " failed: " + cause
            + ". No commit of this group was acknowledged, nothing earlier is affected; Spark retries the tasks."
            + " Check permissions, quota and free space of the file system.", cause);
  }

  /** Rule 7: a file that was left alone for too long may count as closed elsewhere already. */
  private void sealIfStale() {
    if (open != null && open.idleMs(context) > context.options().idleSealMs()) {
      seal();
    }
  }

  private void sealIfFull() {
    if (open == null) {
      return;
    }
    if (open.isFinished()) {
      open = null;
    } else if (open.size() >= context.fileSize() || open.ageMs() > MAX_AGE_MS) {
      seal();
    }
  }

  /** Seals the file where nobody has appended for {@code idleSeal}, or it is too large for what lives by now. */
  void sealIfDue() {
    if (io.tryLock()) {
      try {
        forgetIfGone();
        sealIfStale();
        sealIfFull();
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
      // Whoever was away for longer than that may find that others have dealt with the file: leave it as it is.
      if (open.idleMs(context) > context.options().closedAfterMs() / 2) {
        giveUp();
      } else {
        open.seal();
      }
      open = null;
    } catch (IOException | RuntimeException | Error e) {
      LOG.warn("Could not seal {}; all its groups are durable, and it counts as closed after closedAfter", open.path(),
          e);
      giveUp();
    }
  }

  /** Writes what is queued of tombstones, where no group came to take them along. */
  void writeTombstones() {
    io.lock();
    try {
      write(List.of(), null);
    } finally {
      io.unlock();
    }
  }

  /** Never appends to the file again (rule 1). */
  private void giveUp() {
    if (open != null) {
      open.giveUp();
      open = null;
    }
  }

  /** Forgets the open file: its checkpoint was deleted. */
  void abandon() {
    io.lock();
    try {
      giveUp();
    } finally {
      io.unlock();
    }
  }

  /**
   * Forgets the open file where the checkpoint was deleted under it, which a refresh has found. The refresh tells no lane:
   * it would have to wait for what is being written, perhaps with Spark's locks.
   */
  private void forgetIfGone() {
    if (open != null && context.index().file(open.file().name()) != open.file()) {
      giveUp();
    }
  }
}
