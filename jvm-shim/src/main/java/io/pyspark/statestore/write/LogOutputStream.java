package io.pyspark.statestore.write;

import java.io.IOException;
import java.io.OutputStream;

/**
 * Writes one logical file. Nothing is visible before {@link #close()} returns, and nothing ever becomes visible after
 * {@link #cancel()} or a failed write (rule 2).
 */
public final class LogOutputStream extends OutputStream {
  private final Target target;
  private final String path;
  private final PayloadBuffer payload;
  private final long openedBy = Thread.currentThread().getId();
  private final UploadWatch watch = UploadWatch.current();

  /** The batch at whose end it becomes durable; null where that is when it is closed. */
  private final BatchCommits.Batch batch;

  private volatile Commit kept;
  private boolean broken;
  private boolean finished;

  /** Takes what was written. */
  interface Target {
    /** Makes a file durable and visible, or throws. */
    void commit(LogOutputStream stream, String path, Payload payload, long openedBy, UploadWatch watch)
        throws IOException;

    /** Keeps a file for the end of its batch. */
    Commit keep(String path, Payload payload, long openedBy, BatchCommits.Batch batch) throws IOException;

    /** The stream was closed or cancelled. */
    void left(LogOutputStream stream);

    /** A file was cancelled before it was durable. */
    void cancelled();
  }

  LogOutputStream(Target target, String path, PayloadBuffer payload, BatchCommits.Batch batch) {
    this.target = target;
    this.path = path;
    this.payload = payload;
    this.batch = batch;
    if (watch != null) {
      watch.began(path);
    }
  }

  @Override
  public void write(int b) throws IOException {
    write(new byte[] {(byte) b}, 0, 1);
  }

  @Override
  public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
    if (finished) {
      throw new IOException("state/" + path + " is closed");
    }
    try {
      payload.write(bytes, offset, length);
    } catch (IOException | RuntimeException e) {
      broken = true;
      throw e;
    }
  }

  /** Makes the file durable and visible; one that waits for the end of its batch, only then. */
  @Override
  public synchronized void close() throws IOException {
    if (finished) {
      return;
    }
    finished = true;
    try {
      if (broken) {
        throw new IOException("state/" + path + " was not written: an earlier write to it failed");
      }
      if (batch == null) {
        target.commit(this, path, payload, openedBy, watch);
      } else {
        payload.finish();
        kept = target.keep(path, payload, openedBy, batch);
      }
    } catch (UploadWatch.ObsoleteUploadException e) {
      target.cancelled();
      throw e;
    } catch (IOException e) {
      if (Thread.currentThread().isInterrupted()) {
        target.cancelled();
      }
      throw e;
    } finally {
      target.left(this);
      if (kept == null) {
        payload.close();
      }
    }
  }

  /** Its task has failed, so what waits for the end of the batch does not count. */
  void taskFailed() {
    Commit commit = kept;
    if (commit != null) {
      batch.drop(commit);
    }
  }

  /** Throws away what was written. */
  public synchronized void cancel() {
    if (!finished) {
      finished = true;
      target.cancelled();
      target.left(this);
      payload.close();
    }
  }
}
