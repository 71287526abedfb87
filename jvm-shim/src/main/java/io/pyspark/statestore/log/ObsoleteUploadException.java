package io.pyspark.statestore.log;

/** Ends an upload that nobody needs any more. No error, so it says no more than that, and has no stack trace. */
public final class ObsoleteUploadException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  ObsoleteUploadException(String why) {
    super("The upload was given up: " + why + ". Nothing of it is visible, and nothing is lost", null, false, false);
  }
}
