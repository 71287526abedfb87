package io.pyspark.statestore.log;

/** Steps of which each is made, whatever becomes of the others. */
final class Housekeeping {
  private Throwable failure;

  void run(Runnable step) {
    try {
      step.run();
    } catch (RuntimeException | Error e) {
      if (failure == null) {
        failure = e;
      }
    }
  }

  /** Fails as the first step did that failed. */
  void end() {
    if (failure instanceof Error error) {
      throw error;
    }
    if (failure instanceof RuntimeException runtime) {
      throw runtime;
    }
  }
}
