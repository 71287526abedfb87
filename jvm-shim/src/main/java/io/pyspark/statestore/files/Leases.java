package io.pyspark.statestore.files;

import io.pyspark.statestore.StateStoreFilesException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.CannotObtainBlockLengthException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Opens and closes files on HDFS whose writers have not closed them. After all DataNodes of such a file's last block
 * were restarted, HDFS does not know how long the file is, and it cannot be opened before its lease was recovered
 * (HDFS-17863). A recovery keeps all bytes that were flushed.
 */
final class Leases {
  private static final Logger LOG = LoggerFactory.getLogger(Leases.class);

  /**
   * Longer than a dead writer's lease holds (60 s), and than a living one leaves a broken file open ({@code
   * Options.idleSealMs}, 60 s by default).
   */
  private static final long PATIENCE_MS = 120_000;

  private static final long FIRST_PAUSE_MS = 250;
  private static final long LONGEST_PAUSE_MS = 8_000;
  private static final int RELEASE_ATTEMPTS = 12;

  private static final ScheduledThreadPoolExecutor RELEASES =
      new ScheduledThreadPoolExecutor(
          1,
          task -> {
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
   * Opens a merged file for reading. If HDFS does not know its length, waits until the file is closed.
   *
   * @param isClosed rule 7: if so, even a living process may lose its lease
   * @param closedAfterMs the longest time to wait
   * @throws StateStoreFilesException PSS_FILE_NOT_CLOSED, where it is not closed in time
   */
  static FSDataInputStream open(FileSystem fs, Path path, boolean isClosed, long closedAfterMs) throws IOException {
    try {
      return fs.open(path);
    } catch (CannotObtainBlockLengthException e) {
      LOG.info(
          "HDFS does not know the length of {}, whose writer has not closed it; waiting until it is closed", path, e);
      return openOnceClosed(fs, path, isClosed, Math.min(closedAfterMs, PATIENCE_MS), e);
    }
  }

  private static FSDataInputStream openOnceClosed(
      FileSystem fs, Path path, boolean isClosed, long patienceMs, IOException reason) throws IOException {
    long start = System.nanoTime();
    // On some HDFS a recovery that is asked for again begins again, so it gets more and more time to end.
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
   * Begins to recover a lease. HDFS itself knows best whether a writer lives: a living process renews its leases twice
   * a minute, even with nothing to write, and HDFS lets others append where a writer has not done so for a minute. Only
   * where the file counts as closed (rule 7) is HDFS not asked.
   */
  private static void recover(FileSystem fs, Path path, boolean isClosed) {
    try {
      LeaseRecovery leases = LeaseRecovery.of(fs);
      if (leases == null) {
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

  /** Opens for appending and writes nothing. Fails while the writer lives, and also where it begins the recovery. */
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
        path
            + " cannot be read: its writer has not closed it, and HDFS does not know its length any more ("
            + reason.getMessage()
            + "). Nothing is lost. See that its DataNodes run, then try again; a dead writer's"
            + " file is closed within two minutes. If it still fails and no query writes there, close it yourself: "
            + "hdfs debug recoverLease -path "
            + path.toUri().getPath()
            + " -retries 10",
        reason);
  }

  /**
   * Closes a file of this process whose stream may have failed to close it. Otherwise it would stay open for as long as
   * this process lives and renews its other leases. Does not wait.
   */
  static void release(FileSystem fs, Path path) {
    LeaseRecovery leases = LeaseRecovery.of(fs);
    if (leases != null) {
      releaseLater(leases, path, 1, 0);
    }
  }

  private static void releaseLater(LeaseRecovery leases, Path path, int attempt, long pauseMs) {
    try {
      RELEASES.schedule(() -> release(leases, path, attempt), pauseMs, TimeUnit.MILLISECONDS);
    } catch (RuntimeException | Error e) {
      LOG.warn(
          "{} may stay open for as long as this process lives: no thread could be started to close it. What to do:"
              + " allow this process more threads (ulimit -u) or memory",
          path,
          e);
    }
  }

  private static void release(LeaseRecovery leases, Path path, int attempt) {
    Throwable failure = null;
    try {
      if (leases.isFileClosed(path) || leases.recoverLease(path)) {
        return;
      }
    } catch (FileNotFoundException e) {
      return;
    } catch (IOException | RuntimeException | Error e) {
      // Nobody hears of it, and nobody else closes the file.
      failure = e;
    }
    if (attempt < RELEASE_ATTEMPTS) {
      long pause = Math.min(FIRST_PAUSE_MS << attempt, LONGEST_PAUSE_MS);
      releaseLater(leases, path, attempt + 1, pause);
    } else {
      LOG.warn(
          "{} is still open: HDFS did not recover its lease in "
              + RELEASE_ATTEMPTS
              + " attempts. What to do:"
              + " make sure"
              + " that its DataNodes run; if it stays so, hdfs debug recoverLease -path {} -retries 10",
          path,
          path,
          failure);
    }
  }
}
