package io.pyspark.statestore.log;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;

/** What one caller wants to be made visible together, and how it went. */
final class Commit {
  /**
   * A logical file to write.
   *
   * @param path relative to {@code state/}
   * @param payload its bytes
   * @param copied the segment of which this is a copy (rule 5), or null
   */
  record Item(String path, Payload payload, Segment copied) {
    Item(String path, Payload payload) {
      this(path, payload, null);
    }
  }

  private enum State {
    QUEUED,
    WRITING,
    /** All of it is in the file; its fate is that of its group. */
    FLUSHING,
    DONE,
    WITHDRAWN
  }

  private final List<Item> items;
  private final List<Tombstone> tombstones;
  private final long openedBy;
  /** Null where nobody changes his mind. */
  private final UploadWatch watch;
  private final AtomicReference<State> state = new AtomicReference<>(State.QUEUED);
  private final CountDownLatch finished = new CountDownLatch(1);
  private final long queuedAtNanos = System.nanoTime();
  private volatile IOException failure;
  private volatile String obsoleteBecause;

  Commit(List<Item> items, List<Tombstone> tombstones, long openedBy) {
    this(items, tombstones, openedBy, null);
  }

  /** @param watch says whether it is still wanted; null where it always is */
  Commit(List<Item> items, List<Tombstone> tombstones, long openedBy, UploadWatch watch) {
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

  /** Whether a file is unlinked on the strength of it, so that it has to be as durable as that: on the disk. */
  boolean allowsUnlink() {
    return isForTombstones() || items.stream().anyMatch(item -> item.copied() != null);
  }

  /** Whether it only makes deletions durable. */
  boolean isForTombstones() {
    return items.isEmpty();
  }

  long queuedAtNanos() {
    return queuedAtNanos;
  }

  /** Takes it back: its caller, who writes it himself, was killed. */
  void withdraw() {
    state.compareAndSet(State.WRITING, State.WITHDRAWN);
  }

  /** The writer takes it; false where its caller has withdrawn it. */
  boolean startWriting() {
    return state.compareAndSet(State.QUEUED, State.WRITING);
  }

  /** Whether its caller has been killed, or it became obsolete, while it was being written: the rest need not be. */
  boolean isWithdrawn() {
    String why = watch == null ? null : watch.whyObsolete();
    if (why != null && state.compareAndSet(State.WRITING, State.WITHDRAWN)) {
      obsoleteBecause = why;
    }
    return state.get() == State.WITHDRAWN;
  }

  /** Its payload is written; false where its caller has withdrawn it meanwhile, and it must not become visible. */
  boolean startFlushing() {
    return !isWithdrawn() && state.compareAndSet(State.WRITING, State.FLUSHING);
  }

  /** The writer has let go of a commit that was withdrawn. */
  void dropped() {
    failure = new InterruptedIOException("The task was killed while its commit was written; nothing of it is visible");
    finished.countDown();
  }

  /** Its group failed through no fault of its own: it goes back into the queue, unless its caller was killed. */
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

  void fail(IOException cause) {
    if (state.get() != State.DONE) {
      failure = state.get() == State.WITHDRAWN ? new InterruptedIOException(cause.getMessage()) : cause;
      done();
    }
  }

  /**
   * Waits until the commit is durable (rule 1). A caller that is interrupted before the flush takes its commit back, and
   * nothing becomes visible; after that it is too late to stop, and the answer is waited for.
   *
   * @throws UploadWatch.ObsoleteUploadException where its watch said so in time
   */
  void await() throws IOException {
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
          // The writer stops at the next block and says so; until then it reads the payload.
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
      // A new one for each caller: several tasks share a group's failure, and each adds its own trace.
      throw new IOException(failure.getMessage(), failure);
    }
  }
}
