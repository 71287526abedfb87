package io.pyspark.statestore.learn;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** Brings a question to the index service, and its answer back. */
public interface IndexTransport {
  /** Sends a question. Questions of one thread arrive in the order in which it sends them. */
  CompletableFuture<byte[]> send(byte[] question) throws IOException;

  /** Returns the answer. An interrupt of the thread ends the wait with an {@link InterruptedIOException}. */
  default byte[] ask(byte[] question) throws IOException {
    return await(send(question));
  }

  /** Waits for what becomes of a question; an interrupt ends the wait with an {@link InterruptedIOException}. */
  static <T> T await(CompletableFuture<T> answer) throws IOException {
    try {
      return answer.get();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw (IOException) new InterruptedIOException("Interrupted while the index service was asked").initCause(e);
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException failed
          ? failed
          : new IOException(e.getCause().getMessage(), e.getCause());
    }
  }
}
