package io.pyspark.statestore.log;

/** Spark's threads that upload snapshots and delete old versions, while no task waits for them. */
public final class MaintenanceThreads {
  private static final String NAME = "state-store-maintenance";

  private MaintenanceThreads() {}

  /** Whether the current thread is one. */
  public static boolean isCurrent() {
    return Thread.currentThread().getName().startsWith(NAME);
  }
}
