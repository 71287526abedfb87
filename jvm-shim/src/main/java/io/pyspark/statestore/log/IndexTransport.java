package io.pyspark.statestore.log;

import java.io.IOException;

/** Brings a question to the index service, and its answer back. */
public interface IndexTransport {
  /** Returns the answer. An interrupt of the thread ends the wait with an {@link java.io.InterruptedIOException}. */
  byte[] ask(byte[] question) throws IOException;
}
