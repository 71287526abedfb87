package io.pyspark.statestore.sink;

import io.pyspark.statestore.files.Threads;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.ref.WeakReference;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Says that an attempt at a batch goes on, once it has gone on for long: in its staging directory, every few minutes.
 *
 * <p>A removal of orphans goes by the age of files. An attempt may take longer than the removal's age: what its first
 * tasks have written is old by then, in its staging directory and, since a rename leaves the age, in its place, too,
 * until the list names it. So a removal leaves alone what is younger than an attempt that is at work. An attempt that
 * was silent for longer than {@link #leaseMs} looks at its files again before they are listed. Short batches, the most,
 * write nothing.
 */
final class AtWork {
  /** The name of the file in the staging directory; the same as in Python's {@code sink/orphans.py}. */
  static final String NAME = "_at_work";

  /** A sign that is older is of an attempt that has ended; the same as Python's {@code sink/notes.py}. */
  static volatile long leaseMs = TimeUnit.MINUTES.toMillis(30);

  /** How often it is said. */
  static volatile long everyMs = TimeUnit.MINUTES.toMillis(5);

  private static final Logger LOG = LoggerFactory.getLogger(AtWork.class);
  private static final ScheduledThreadPoolExecutor TIMER =
      new ScheduledThreadPoolExecutor(1, Threads.daemons("sink-at-work-timer"));

  /** A file system that does not answer holds up nobody else's. */
  private static final ExecutorService WRITERS = Executors.newCachedThreadPool(Threads.daemons("sink-at-work"));

  static {
    TIMER.setRemoveOnCancelPolicy(true);
  }

  private final FileSystem fs;
  private final Path file;
  private final long beganNanos = System.nanoTime();
  private ScheduledFuture<?> ticks;
  private boolean isWriting;
  private boolean hasEnded;
  private long saidNanos = System.nanoTime();
  private long saidMs = System.currentTimeMillis();

  private AtWork(FileSystem fs, Path staging) {
    this.fs = fs;
    this.file = new Path(staging, NAME);
  }

  /**
   * Begins.
   *
   * @param owner when nobody has this any more, the attempt has ended without a word
   */
  static AtWork begin(FileSystem fs, Path staging, Object owner) {
    AtWork begun = new AtWork(fs, staging);
    WeakReference<Object> attempt = new WeakReference<>(owner);
    long ms = everyMs;
    Runnable tick =
        () -> {
          if (attempt.get() == null) {
            begun.end();
          } else {
            begun.tick();
          }
        };
    begun.ticks = TIMER.scheduleAtFixedRate(tick, ms, ms, TimeUnit.MILLISECONDS);
    return begun;
  }

  private synchronized void tick() {
    if (!isWriting && !hasEnded) {
      isWriting = true;
      WRITERS.execute(this::write);
    }
  }

  private void write() {
    long nanos = System.nanoTime();
    long ms = System.currentTimeMillis();
    boolean done = false;
    try {
      try (OutputStream out = fs.create(file, true)) {
        out.write(Long.toString(TimeUnit.NANOSECONDS.toMillis(nanos - beganNanos)).getBytes(StandardCharsets.US_ASCII));
      }
      done = true;
    } catch (IOException | RuntimeException e) {
      LOG.debug("{} could not be written; it is written again in a few minutes", file, e);
    } finally {
      written(done, nanos, ms);
    }
  }

  /** An attempt that has ended meanwhile wants nothing to be left in its directory. */
  private void written(boolean done, long nanos, long ms) {
    boolean isLate;
    synchronized (this) {
      isWriting = false;
      isLate = hasEnded;
      if (done) {
        saidNanos = nanos;
        saidMs = ms;
      }
    }
    if (isLate) {
      try {
        fs.delete(file.getParent(), true);
      } catch (IOException | RuntimeException e) {
        LOG.debug("{} stays; it goes after a day", file, e);
      }
    }
  }

  /**
   * Whether nothing was said for so long, by any clock, that others may have taken the attempt for one that has ended.
   */
  synchronized boolean wasSilent() {
    long nanos = System.nanoTime() - saidNanos;
    return Math.max(TimeUnit.NANOSECONDS.toMillis(nanos), System.currentTimeMillis() - saidMs) > leaseMs;
  }

  /** The attempt has ended, and its directory is about to go. */
  synchronized void end() {
    hasEnded = true;
    ticks.cancel(false);
  }
}
