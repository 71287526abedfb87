package io.pyspark.statestore.testing;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.impl.StoreImplementationUtils;

/**
 * A store that behaves as ABFS, Hadoop's client of Azure: {@code AbfsOutputStream} and {@code AbfsInputStream} of 3.4.
 *
 * <ul>
 *   <li>A file is there, empty, as soon as it is created.
 *   <li>hflush, hsync and close append what was written since, which changes the file's eTag. With {@code enable.flush}
 *       false, hflush and hsync do nothing, as {@code hasCapability} then says.
 *   <li>A file has {@code blocks} blocks at most, of which each flush with new bytes makes one.
 *   <li>Each read sends {@code If-Match} with the eTag of the open, and fails with 412 once the file was flushed again,
 *       unless {@code read.tolerate.concurrent.append} is true. A stream reaches as far as the file did when it was
 *       opened.
 *   <li>An interrupt fails hflush and close with an IOException, and is forgotten by the thread.
 *   <li>A stream reads ahead unless it was opened with {@code fs.azure.buffered.pread.disable}.
 *   <li>A file that was deleted while it was written cannot be flushed any more.
 * </ul>
 */
public final class AzureLikeFileSystem extends CloudLikeFileSystem {
  private static final int BLOCKS = 50_000;
  private static final AtomicInteger READING_AHEAD = new AtomicInteger();

  /** How many files this process has opened with read-ahead, which fetches megabytes for a read of a few bytes. */
  public static int opensWithReadAhead() {
    return READING_AHEAD.get();
  }

  @Override
  protected CompletableFuture<FSDataInputStream> openFileWithOptions(Path path, OpenFileParameters parameters)
      throws IOException {
    if (parameters.getOptions().getBoolean("fs.azure.buffered.pread.disable", false)) {
      READING_AHEAD.decrementAndGet();
    }
    return super.openFileWithOptions(path, parameters);
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    READING_AHEAD.incrementAndGet();
    return super.open(path, bufferSize);
  }

  @Override
  protected FSDataOutputStream write(Path path, File target) throws IOException {
    new FileOutputStream(target).close();
    return new FSDataOutputStream(new Blocks(target), null);
  }

  @Override
  protected IOException changed(Path path) {
    return getConf().getBoolean(key("read.tolerate.concurrent.append"), false)
        ? null
        : new IOException("412 ConditionNotMet: " + path + " has another eTag than when it was opened");
  }

  @Override
  protected long available(long left) {
    return left;
  }

  /** A file that is written block by block. */
  private final class Blocks extends OutputStream implements Syncable, StreamCapabilities {
    private final File target;
    private final boolean flushes = getConf().getBoolean(key("enable.flush"), true);
    private final int most = getConf().getInt(key("blocks"), BLOCKS);
    private final ByteArrayOutputStream block = new ByteArrayOutputStream();
    private int blocks;
    private boolean closed;

    Blocks(File target) {
      this.target = target;
    }

    @Override
    public synchronized void write(int b) throws IOException {
      requireOpen();
      block.write(b);
    }

    @Override
    public synchronized void write(byte[] bytes, int offset, int count) throws IOException {
      requireOpen();
      Gate.pass("write", target.toString());
      block.write(bytes, offset, count);
    }

    private void requireOpen() throws IOException {
      if (closed) {
        throw new IOException("The stream is closed");
      }
    }

    @Override
    public void hflush() throws IOException {
      if (flushes) {
        commit();
      }
    }

    @Override
    public void hsync() throws IOException {
      hflush();
    }

    @Override
    public void close() throws IOException {
      if (!closed) {
        closed = true;
        commit();
      }
    }

    private synchronized void commit() throws IOException {
      if (Thread.interrupted()) {
        throw new IOException(new InterruptedException());
      }
      if (!target.exists()) {
        throw new FileNotFoundException("404 PathNotFound: " + target);
      }
      if (block.size() > 0) {
        if (++blocks > most) {
          throw new IOException("409 BlockCountExceedsLimit: " + target);
        }
        try (FileOutputStream out = new FileOutputStream(target, true)) {
          block.writeTo(out);
        }
        block.reset();
      }
    }

    @Override
    public boolean hasCapability(String capability) {
      return flushes && StoreImplementationUtils.isProbeForSyncable(capability);
    }
  }
}
