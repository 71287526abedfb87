package io.pyspark.statestore.log;

/** Lets a test say when rounds of cleaning come in this process. */
public final class Cleaning {
  private Cleaning() {}

  /** From now on only when {@link MergedLog#clean} is called. */
  public static void byHand() {
    MergedLogs.cleanByThemselves(false);
  }

  /** As in production. */
  public static void byItself() {
    MergedLogs.cleanByThemselves(true);
  }
}
