package io.pyspark.statestore.fs;

import java.io.IOException;
import java.io.OutputStream;

/** A new file that appears whole when it is closed, or not at all. */
interface AtomicFile {
  /** What its bytes go to. */
  OutputStream out();

  void close() throws IOException;

  void cancel();
}
