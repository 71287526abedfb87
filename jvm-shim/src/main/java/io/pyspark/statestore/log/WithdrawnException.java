package io.pyspark.statestore.log;

import java.io.IOException;

/** The caller of a commit has taken it back while its payload was being written. */
final class WithdrawnException extends IOException {
  private static final long serialVersionUID = 1L;

  WithdrawnException() {
    super("withdrawn");
  }
}
