package io.pyspark.statestore.heap;

/** Ends the writing of a snapshot that nobody needs any more. Not an error, so it says no more than that. */
final class SupersededException extends RuntimeException {
  private static final String MESSAGE =
      "The snapshot was given up: its version was written anew, or its store closed. Nothing is lost";

  SupersededException() {
    super(MESSAGE, null, false, false);
  }
}
