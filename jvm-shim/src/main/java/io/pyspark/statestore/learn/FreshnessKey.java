package io.pyspark.statestore.learn;

/** Questions with equal keys share one refresh, which begins after the first of them was asked. */
public sealed interface FreshnessKey {
  /** Whether it is a question of a streaming query's task, for what earlier tasks of the query have committed. */
  default boolean isOfQuery() {
    return false;
  }

  /**
   * The tasks of one stage attempt: what they load was committed before their stage began.
   *
   * @param isOfQuery whether a streaming query submitted the stage, and not a batch job that reads a query's state
   */
  record StageAttempt(String application, int stage, int attempt, boolean isOfQuery) implements FreshnessKey {}

  /** One run of a query: between two runs a checkpoint may be deleted, or put back from a copy. */
  record QueryRun(String id) implements FreshnessKey {}
}
