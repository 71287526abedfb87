package io.pyspark.statestore.write;

import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.index.Tombstone;
import io.pyspark.statestore.metrics.LogMetrics;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;

/** What one caller wants to become visible together, and what became of it. */
public final class Commit {
  /**
   * A logical file to write.
   *
   * @param path relative to {@code state/}
   * @param copied the segment of which this is a copy (rule 5), or null
   * @param stamp of its entry; 0 where it gets one when it is written
   */
  public record Item(String path, Payload payload, Segment copied, long stamp) {
    public Item(String path, Payload payload) {
      this(path, payload, null, 0);
    }

    public Item(String path, Payload payload, Segment copied) {
      this(path, payload, copied, 0);
    }
  }

  private enum State {
    QUEUED,
    WRITING,
    /** All its bytes are in the file. It succeeds or fails with its group. */
    FLUSHING,
    DONE,
    WITHDRAWN
  }

  private final List<Item> items;
  private final List<Tombstone> tombstones;
  private final long openedBy;

  /** Says whether the upload is still needed; null where it always is. */
  private final UploadWatch watch;

  private final AtomicReference<State> state = new AtomicReference<>(State.QUEUED);
  private final CountDownLatch finished = new CountDownLatch(1);
  private final long queuedAtNanos = System.nanoTime();
  private final boolean isUpload = Threads.isMaintenance();
  private volatile IOException failure;
  private volatile Reporter.Receipt report = Reporter.Receipt.NONE;
  private volatile String obsoleteBecause;

  /** Whether it was ever a part of a group that was flushed, or was to be. */
  private volatile boolean wasFlushed;

  Commit(List<Item> items, List<Tombstone> tombstones, long openedBy) {
    this(items, tombstones, openedBy, null);
  }

  public Commit(List<Item> items, List<Tombstone> tombstones, long openedBy, UploadWatch watch) {
    this.items = items;
    this.tombstones = tombstones;
    this.openedBy = openedBy;
    this.watch = watch;
  }

  /** Id of the thread that opened the stream. */
  long openedBy() {
    return openedBy;
  }

  List<Item> items() {
    return items;
  }

  List<Tombstone> tombstones() {
    return tombstones;
  }

  long length() {
    return items.stream().mapToLong(i -> i.payload().length()).sum();
  }

  /** What metrics count of it. */
  LogMetrics.Written figures() {
    Map<String, Long> written = new LinkedHashMap<>();
    items.stream()
        .filter(item -> item.copied() == null)
        .forEach(item -> written.put(item.path(), item.payload().length()));
    return new LogMetrics.Written(queuedAtNanos, items.size(), length(), written);
  }

  /** Whether a file may be unlinked because of it, so that it has to be on the disk, too. */
  boolean allowsUnlink() {
    return isForTombstones() || items.stream().anyMatch(item -> item.copied() != null);
  }

  /** Whether it holds tombstones only. */
  boolean isForTombstones() {
    return items.isEmpty();
  }

  /** Whether Spark's maintenance made it, so that no task waits for it. */
  boolean isUpload() {
    return isUpload;
  }

  long queuedAtNanos() {
    return queuedAtNanos;
  }

  /** Takes it back while its own caller writes it: the caller was killed. */
  void withdraw() {
    state.compareAndSet(State.WRITING, State.WITHDRAWN);
  }

  /** The writer takes it; returns false where its caller has withdrawn it. */
  boolean startWriting() {
    return state.compareAndSet(State.QUEUED, State.WRITING);
  }

  /** Whether the rest need not be written, because its caller was killed or it became obsolete. */
  boolean isWithdrawn() {
    String why = watch == null ? null : watch.whyObsolete();
    if (why != null && state.compareAndSet(State.WRITING, State.WITHDRAWN)) {
      obsoleteBecause = why;
    }
    return state.get() == State.WITHDRAWN;
  }

  /** Its payload is written; returns false where it was withdrawn meanwhile and must not become visible. */
  boolean startFlushing() {
    boolean starts = !isWithdrawn() && state.compareAndSet(State.WRITING, State.FLUSHING);
    wasFlushed |= starts;
    return starts;
  }

  /** Whether all of it may be in the checkpoint: also where its caller was told that it failed. */
  boolean mayBeDurable() {
    return wasFlushed;
  }

  /** The writer no longer reads the payload of a commit that was withdrawn. */
  void dropped() {
    failure = new InterruptedIOException("The task was killed while its commit was written; nothing of it is visible");
    finished.countDown();
  }

  /** Its group failed for another commit's reason: it goes back into the queue, unless its caller was killed. */
  boolean writeAgain() {
    if (state.get() == State.WITHDRAWN) {
      dropped();
      return false;
    }
    state.set(State.QUEUED);
    return true;
  }

  void done() {
    state.set(State.DONE);
    finished.countDown();
  }

  /** It is durable, and its group's report is under way. */
  void done(Reporter.Receipt report) {
    this.report = report;
    done();
  }

  /** What becomes of its group's report, once it is durable. */
  Reporter.Receipt report() {
    return report;
  }

  void fail(IOException cause) {
    if (state.get() != State.DONE) {
      failure = state.get() == State.WITHDRAWN ? new InterruptedIOException(cause.getMessage()) : cause;
      done();
    }
  }

  /**
   * Waits until the commit is durable (rule 1). A caller that is interrupted before the flush takes its commit back,
   * and nothing becomes visible. After that it is too late to stop, so the caller waits for the answer.
   *
   * @throws UploadWatch.ObsoleteUploadException where its watch called it obsolete in time
   */
  public void await() throws IOException {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          finished.await();
          break;
        } catch (InterruptedException e) {
          interrupted = true;
          if (state.compareAndSet(State.QUEUED, State.WITHDRAWN)) {
            throw new InterruptedIOException("The task was killed before its commit was written; nothing is visible");
          }
          // The writer stops at the next block and says so. Until then it reads the payload.
          state.compareAndSet(State.WRITING, State.WITHDRAWN);
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
    if (obsoleteBecause != null) {
      throw new UploadWatch.ObsoleteUploadException(obsoleteBecause);
    }
    if (failure instanceof InterruptedIOException) {
      throw new InterruptedIOException(failure.getMessage());
    }
    if (failure != null) {
      // A new one for each caller: several tasks share a group's failure, and each adds its own stack trace.
      throw new IOException(failure.getMessage(), failure);
    }
  }
}
