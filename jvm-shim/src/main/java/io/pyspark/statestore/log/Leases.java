package io.pyspark.statestore.log;

import io.pyspark.statestore.StateStoreFilesException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LeaseRecoverable;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.CannotObtainBlockLengthException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Files on HDFS that their writers have not closed. Where all DataNodes of such a file's last block were restarted,
 * HDFS does not say how long the file is, and nobody can open it before its lease was recovered (HDFS-17863). A recovery
 * keeps all bytes that were flushed.
 */
final class Leases {
  private static final Logger LOG = LoggerFactory.getLogger(Leases.class);

  /** Longer than a dead writer's lease holds (60 s), and than a living one leaves a broken file open (idleSeal). */
  private static final long PATIENCE_MS = 120_000;

  private static final long FIRST_PAUSE_MS = 250;
  private static final long LONGEST_PAUSE_MS = 8_000;
  private static final int RELEASE_ATTEMPTS = 12;

  private static final ScheduledThreadPoolExecutor RELEASES = new ScheduledThreadPoolExecutor(1, task -> {
    Thread thread = new Thread(task, "pyspark-statestore-leases");
    thread.setDaemon(true);
    return thread;
  });

  static {
    RELEASES.setKeepAliveTime(10, TimeUnit.SECONDS);
    RELEASES.allowCoreThreadTimeOut(true);
  }

  private Leases() {}

  /**
   * Opens a merged file for reading; one whose length HDFS does not know once it is closed.
   *
   * @param isClosed whether nobody appends to it any more (rule 7): a living process may lose its lease then
   * @param closedAfterMs the option; there is no use in waiting for longer
   * @throws StateStoreFilesException where it is not closed in time
   */
  static FSDataInputStream open(FileSystem fs, Path path, boolean isClosed, long closedAfterMs) throws IOException {
    try {
      return fs.open(path);
    } catch (CannotObtainBlockLengthException e) {
      LOG.warn("HDFS does not know the length of {}, which nobody has closed; waiting until it is closed", path, e);
      return openOnceClosed(fs, path, isClosed, Math.min(closedAfterMs, PATIENCE_MS), e);
    }
  }

  private static FSDataInputStream openOnceClosed(
      FileSystem fs, Path path, boolean isClosed, long patienceMs, IOException reason) throws IOException {
    long start = System.nanoTime();
    // A recovery that is asked for again begins again, on some HDFS; so it gets longer and longer to end.
    for (long pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      recover(fs, path, isClosed);
      sleep(pause, path);
      try {
        return fs.open(path);
      } catch (FileNotFoundException e) {
        throw e;
      } catch (IOException e) {
        if ((System.nanoTime() - start) / 1_000_000 > patienceMs) {
          throw notClosed(path, reason);
        }
      }
    }
  }

  /**
   * Begins to recover a lease. HDFS itself knows best whether a writer lives: a process renews its leases twice a minute,
   * also while it has nothing to write, and whoever wants to append gets the lease of one that has not done so for a
   * minute. Only where rule 7 says that the writer must not append any more, HDFS is not asked.
   */
  private static void recover(FileSystem fs, Path path, boolean isClosed) {
    try {
      if (!(fs instanceof LeaseRecoverable leases)) {
        append(fs, path);
      } else if (!leases.isFileClosed(path)) {
        if (isClosed) {
          leases.recoverLease(path);
        } else {
          append(fs, path);
        }
      }
    } catch (IOException | UnsupportedOperationException e) {
      LOG.debug("{} is not closed yet", path, e);
    }
  }

  /** Fails as long as the writer lives, and also where this has begun the recovery; nothing is written. */
  private static void append(FileSystem fs, Path path) throws IOException {
    FSDataOutputStream out = fs.append(path);
    try {
      out.close();
    } catch (IOException e) {
      release(fs, path);
      throw e;
    }
  }

  private static void sleep(long ms, Path path) throws IOException {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while waiting for " + path + " to be closed");
    }
  }

  private static StateStoreFilesException notClosed(Path path, IOException reason) {
    return new StateStoreFilesException(
        StateStoreFilesException.Id.PSS_FILE_NOT_CLOSED,
        path + " cannot be read: its writer has not closed it, and HDFS does not know its length any more ("
            + reason.getMessage() + "). Nothing is lost. See that its DataNodes run, then try again; a dead writer's file is "
            + "closed within two minutes. If it still fails and no query writes there, close it yourself: "
            + "hdfs debug recoverLease -path " + path.toUri().getPath() + " -retries 10",
        reason);
  }

  /**
   * Closes a file for good that this process has written and has done with, where closing its stream has not. Else it
   * would stay open for as long as this process lives, since it goes on renewing its other leases. Does not wait.
   */
  static void release(FileSystem fs, Path path) {
    if (fs instanceof LeaseRecoverable leases) {
      RELEASES.execute(() -> release(leases, path, 1));
    }
  }

  private static void release(LeaseRecoverable leases, Path path, int attempt) {
    IOException failure = null;
    try {
      if (leases.isFileClosed(path) || leases.recoverLease(path)) {
        return;
      }
    } catch (FileNotFoundException e) {
      return;
    } catch (IOException e) {
      failure = e;
    }
    if (attempt < RELEASE_ATTEMPTS) {
      long pause = Math.min(FIRST_PAUSE_MS << attempt, LONGEST_PAUSE_MS);
      RELEASES.schedule(() -> release(leases, path, attempt + 1), pause, TimeUnit.MILLISECONDS);
    } else {
      LOG.warn("{} was given up and is still open", path, failure);
    }
  }
}
