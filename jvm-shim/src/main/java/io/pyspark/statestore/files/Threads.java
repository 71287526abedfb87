package io.pyspark.statestore.files;

import java.io.InterruptedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;

/** What threads are called, and what tells that one was interrupted. */
public final class Threads {
  /** Names of Spark's threads that upload snapshots and delete old versions begin so. */
  private static final String MAINTENANCE = "state-store-maintenance";

  private Threads() {}

  /** Whether the current thread is one of those in which Spark uploads snapshots and deletes old versions. */
  public static boolean isMaintenance() {
    return Thread.currentThread().getName().startsWith(MAINTENANCE);
  }

  /** Makes daemon threads with a name and a number. */
  public static ThreadFactory daemons(String name) {
    AtomicInteger count = new AtomicInteger();
    return task -> {
      Thread thread = new Thread(task, name + "-" + count.incrementAndGet());
      thread.setDaemon(true);
      return thread;
    };
  }

  /** Whether a call failed because its thread was interrupted. */
  public static boolean saysInterrupted(Throwable failure) {
    return failure instanceof InterruptedIOException || failure instanceof ClosedByInterruptException;
  }
}
