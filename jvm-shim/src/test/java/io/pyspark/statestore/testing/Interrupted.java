package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.OutputStream;

/** What a stream does in a thread that is interrupted, as that of a killed task. */
public final class Interrupted {
  private Interrupted() {}

  /** Closes it. */
  public static void close(OutputStream out) throws IOException {
    Thread.currentThread().interrupt();
    try {
      out.close();
    } finally {
      Thread.interrupted();
    }
  }
}
