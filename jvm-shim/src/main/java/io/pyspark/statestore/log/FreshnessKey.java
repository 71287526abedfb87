package io.pyspark.statestore.log;

/** Questions with equal keys share one refresh, which begins after the first of them was asked. */
public sealed interface FreshnessKey {
  /** The tasks of one stage attempt: what they load was committed before their stage began. */
  record StageAttempt(String application, int stage, int attempt) implements FreshnessKey {}

  /** One run of a query: between two runs a checkpoint may be deleted, or put back from a copy. */
  record QueryRun(String id) implements FreshnessKey {}
}
