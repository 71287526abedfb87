package io.pyspark.statestore.testing;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Files;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.impl.StoreImplementationUtils;

/**
 * A store that behaves as Google's connector 3 and 4, and as {@code hadoop-gcp} of Hadoop 3.5, which share their
 * streams.
 *
 * <ul>
 *   <li>An object appears when it is closed.
 *   <li>hsync writes what came since as an object of its own beside it ({@code _GHFS_SYNC_TMP_FILE_...}), composes both
 *       into a new generation under the object's name, and removes the part. A writer that dies leaves the part.
 *   <li>With {@code sync.min.interval} (milliseconds) above 0, streams say that they can hflush and hsync. hsync then
 *       waits for its turn, and <b>hflush does nothing where it is not its turn yet</b>, without saying so.
 *   <li>A stream reads the generation that it has opened. There is none of an older one: reads fail as if the object
 *       did not exist.
 *   <li>An interrupt cancels the upload in close, and the thread stays interrupted. A thread that is interrupted when
 *       it writes ends the upload instead: an object appears that is cut off.
 * </ul>
 */
public final class GoogleLikeFileSystem extends CloudLikeFileSystem {
  @Override
  protected FSDataOutputStream write(Path path, File target) {
    return new FSDataOutputStream(new Composed(target, getConf().getLong(key("sync.min.interval"), 0)), null);
  }

  @Override
  protected IOException changed(Path path) {
    return new FileNotFoundException("404: " + path + " has another generation than when it was opened");
  }

  @Override
  protected long available(long left) {
    return 0;
  }

  /** An object that is made of parts. */
  private static final class Composed extends OutputStream implements Syncable, StreamCapabilities {
    private final File target;
    private final long intervalMs;
    private final ByteArrayOutputStream part = new ByteArrayOutputStream();
    private int parts;
    private String generation;
    private long nextSyncNanos = System.nanoTime();
    private boolean closed;

    Composed(File target, long intervalMs) {
      this.target = target;
      this.intervalMs = intervalMs;
    }

    @Override
    public void write(int b) throws IOException {
      write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public synchronized void write(byte[] bytes, int offset, int count) throws IOException {
      if (closed) {
        throw new ClosedChannelException();
      }
      if (Thread.currentThread().isInterrupted()) {
        closed = true;
        commit();
        throw new ClosedByInterruptException();
      }
      part.write(bytes, offset, count);
    }

    @Override
    public synchronized void hflush() throws IOException {
      if (System.nanoTime() - nextSyncNanos >= 0) {
        sync();
      }
    }

    @Override
    public synchronized void hsync() throws IOException {
      try {
        Thread.sleep(Math.max(0, (nextSyncNanos - System.nanoTime()) / 1_000_000));
      } catch (InterruptedException e) {
        throw (IOException) new InterruptedIOException().initCause(e);
      }
      sync();
    }

    private void sync() throws IOException {
      if (closed) {
        throw new ClosedChannelException();
      }
      nextSyncNanos = System.nanoTime() + intervalMs * 1_000_000;
      commit();
    }

    private void commit() throws IOException {
      File hidden = hidden(target);
      if (parts++ == 0) {
        Files.write(hidden.toPath(), part.toByteArray());
      } else {
        String name = "_GHFS_SYNC_TMP_FILE_" + target.getName() + "." + parts + "." + UUID.randomUUID();
        File beside = new File(target.getParentFile(), name);
        Files.write(beside.toPath(), part.toByteArray());
        if (!version(target).equals(generation)) {
          throw new IOException("412 conditionNotMet: another generation of " + target);
        }
        try (FileOutputStream out = new FileOutputStream(hidden)) {
          Files.copy(target.toPath(), out);
          part.writeTo(out);
        }
        Files.delete(beside.toPath());
      }
      show(hidden, target);
      generation = version(target);
      part.reset();
    }

    @Override
    public synchronized void close() throws IOException {
      if (closed) {
        return;
      }
      closed = true;
      if (Thread.currentThread().isInterrupted()) {
        throw new ClosedByInterruptException();
      }
      commit();
    }

    @Override
    public boolean hasCapability(String capability) {
      return intervalMs > 0 && StoreImplementationUtils.isProbeForSyncable(capability);
    }
  }
}
