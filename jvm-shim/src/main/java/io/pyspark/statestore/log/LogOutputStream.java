package io.pyspark.statestore.log;

import java.io.IOException;
import java.io.OutputStream;

/**
 * Writes one logical file. Nothing is visible before {@link #close()} returns, and nothing ever becomes visible after
 * {@link #cancel()} or a failed write (rule 2).
 */
public final class LogOutputStream extends OutputStream {
  private final MergedLog log;
  private final String path;
  private final PayloadBuffer payload;
  private final long openedBy = Thread.currentThread().getId();
  private final UploadWatch watch = UploadWatch.current();
  private boolean broken;
  private boolean finished;

  LogOutputStream(MergedLog log, String path, PayloadBuffer payload) {
    this.log = log;
    this.path = path;
    this.payload = payload;
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

  /** Makes the file durable and visible. */
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
      log.commit(this, path, payload, openedBy, watch);
    } catch (UploadWatch.ObsoleteUploadException e) {
      log.metrics().uploadCancelled();
      throw e;
    } catch (IOException e) {
      if (Thread.currentThread().isInterrupted()) {
        log.metrics().uploadCancelled();
      }
      throw e;
    } finally {
      log.left(this);
      payload.close();
    }
  }

  /** Throws away what was written. */
  public synchronized void cancel() {
    if (!finished) {
      finished = true;
      log.metrics().uploadCancelled();
      log.left(this);
      payload.close();
    }
  }
}
