package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The staging directory of one attempt at one batch: what is in it gets its final name ({@link Placement}), and the
 * directory goes.
 *
 * <p><b>What is deleted, and why that is safe.</b> No list of a sink ever names a file below the staging directory, so
 * no reader misses one. An attempt deletes its own directory when it has committed or failed. A directory that is left
 * over goes when nothing in it has changed for a day: an attempt that is still at work would have changed it ({@link
 * AtWork}). What a killed task writes after its attempt has deleted the directory goes then, too: nobody waits for such
 * a task. Where a directory cannot be listed, nothing is deleted.
 *
 * <p>The directory of all attempts goes with the last of them, where a file system deletes a directory in one step, and
 * only an empty one. An attempt makes its own directory before its tasks write there, so nobody takes away what a task
 * is about to write to.
 */
final class Staging {
  private static final Logger LOG = LoggerFactory.getLogger(Staging.class);
  private static final String CRYPTO_FACTORY = "parquet.crypto.factory.class";
  private static final String KEYS_INSIDE = "parquet.encryption.key.material.store.internally";

  /** File systems that delete a directory in one step if it is empty, and leave it otherwise. */
  private static final Set<String> DELETE_WHAT_IS_EMPTY = Set.of("file", "hdfs", "webhdfs", "swebhdfs");

  /** Each but the first is needed where another attempt has ended in between. */
  private static final int ATTEMPTS_TO_BEGIN = 5;

  private static final int THREADS = 8;
  private static final long SWEEP_INTERVAL_NANOS = TimeUnit.HOURS.toNanos(1);

  /**
   * What nobody has changed for so long is of an attempt that has ended. One that is at work says so every few minutes
   * ({@link AtWork}); a day has room for a process that was stopped, a clock that is wrong, and somebody who looks.
   */
  private static final long RETENTION_MS = TimeUnit.DAYS.toMillis(1);

  /** When this process last looked for left-over directories, by sink. */
  private static final Map<String, Long> LAST_SWEEP = new ConcurrentHashMap<>();

  private final Path sink;
  private final Path path;
  private final FileSystem fs;
  private final Configuration conf;

  /**
   * @throws StateStoreFilesException PSS_SINK_COMPACTION_FAILED where Parquet would keep keys beside what is staged
   */
  Staging(String sink, String staging, Configuration conf) throws IOException {
    refuseKeyFiles(sink, conf);
    this.conf = conf;
    this.fs = new Path(sink).getFileSystem(conf);
    this.sink = fs.makeQualified(new Path(sink));
    this.path = fs.makeQualified(new Path(staging));
  }

  /** Parquet would write a file of keys beside each staged file; that would not come along, and nobody could read. */
  private static void refuseKeyFiles(String sink, Configuration conf) throws StateStoreFilesException {
    if (conf.get(CRYPTO_FACTORY) != null && !conf.getBoolean(KEYS_INSIDE, true)) {
      throw new StateStoreFilesException(
          Id.PSS_SINK_COMPACTION_FAILED,
          "The files of "
              + sink
              + " cannot be joined: Parquet would keep their keys in"
              + " files of their own, which do not come along to where files are published. Nothing was changed. Set "
              + KEYS_INSIDE
              + " to true, or unset spark.sql.streaming.commitProtocolClass to write files as stock Spark"
              + " does.");
    }
  }

  /** A directory that no other attempt has. */
  static String newDirectory(String sink, String batch) {
    return SinkPaths.inside(new Path(sink), SinkPlaces.STAGING + "/" + batch + "-" + newAttempt()).toString();
  }

  /** Sixteen digits that no other attempt has. */
  static String newAttempt() {
    return String.format("%016x", ThreadLocalRandom.current().nextLong());
  }

  /** Makes the directory, before any task writes there: see {@link #deleteIfEmpty}. */
  void begin() throws IOException {
    for (int attempt = 1; goesWhenEmpty(); attempt++) {
      try {
        if (fs.mkdirs(path)) {
          return;
        }
      } catch (IOException e) {
        if (attempt == ATTEMPTS_TO_BEGIN) {
          throw e;
        }
      }
      if (attempt == ATTEMPTS_TO_BEGIN) {
        throw new IOException(path + " could not be made");
      }
    }
  }

  private boolean goesWhenEmpty() {
    return DELETE_WHAT_IS_EMPTY.contains(fs.getUri().getScheme());
  }

  Path path() {
    return path;
  }

  Path sink() {
    return sink;
  }

  FileSystem fileSystem() {
    return fs;
  }

  Configuration configuration() {
    return conf;
  }

  /** Does all of it, or fails when none of it goes on. */
  static <T> List<T> inParallel(List<Callable<T>> tasks) throws IOException {
    ExecutorService threads = Executors.newFixedThreadPool(Math.max(1, Math.min(THREADS, tasks.size())));
    try {
      List<T> results = new ArrayList<>();
      for (Future<T> future : threads.invokeAll(tasks)) {
        results.add(future.get());
      }
      return results;
    } catch (ExecutionException e) {
      throw new IOException(e.getCause().getMessage(), e.getCause());
    } catch (InterruptedException e) {
      // The one who deletes what was placed must not be overtaken.
      awaitEnd(threads);
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while files came to their final places");
    } finally {
      threads.shutdownNow();
    }
  }

  private static void awaitEnd(ExecutorService threads) {
    threads.shutdownNow();
    boolean ended = false;
    while (!ended) {
      try {
        ended = threads.awaitTermination(1, TimeUnit.MINUTES);
      } catch (InterruptedException again) {
        // The caller interrupts itself once more.
      }
    }
  }

  /** Deletes files that nobody needs, and the directory. */
  void delete(List<Path> files) throws IOException {
    inParallel(files.stream().map(file -> (Callable<Boolean>) () -> fs.delete(file, false)).toList());
    fs.delete(path, true);
    deleteIfEmpty(new Path(sink, SinkPlaces.STAGING));
  }

  /** Deletes the directory of all attempts if there is none. */
  private void deleteIfEmpty(Path root) {
    if (!goesWhenEmpty()) {
      return;
    }
    try {
      java.nio.file.Path local = java.nio.file.Path.of(root.toUri().getPath());
      if (!fs.getUri().getScheme().equals("file")) {
        fs.delete(root, false);
      } else if (Files.isDirectory(local, LinkOption.NOFOLLOW_LINKS)) {
        // Hadoop looks whether a local directory is empty, and then deletes it with all that has come into it since.
        Files.deleteIfExists(local);
      }
    } catch (IOException | RuntimeException e) {
      LOG.debug("{} stays: other attempts are in it", root, e);
    }
  }

  /** Looks for what attempts that failed have left, once an hour. */
  void sweepIfDue(Waiting waiting) throws IOException {
    long now = System.nanoTime();
    Long last = LAST_SWEEP.get(sink.toString());
    if (last == null || now - last >= SWEEP_INTERVAL_NANOS) {
      LAST_SWEEP.put(sink.toString(), now);
      sweep(System.currentTimeMillis() - RETENTION_MS);
      waiting.sweep(fs, sink, System.currentTimeMillis() - RETENTION_MS);
    }
  }

  /** Deletes the directories of other attempts in which nothing has changed since a time. */
  private void sweep(long beforeMs) throws IOException {
    for (String root : new String[] {SinkPlaces.STAGING, SinkPlaces.FORMER_STAGING}) {
      Path directory = new Path(sink, root);
      for (FileStatus other : list(directory)) {
        if (!other.getPath().equals(path) && hasNotChangedSince(other, beforeMs)) {
          LOG.info("Deleting {}, which an attempt that failed has left", other.getPath());
          fs.delete(other.getPath(), true);
        }
      }
      deleteIfEmpty(directory);
    }
  }

  private FileStatus[] list(Path directory) throws IOException {
    try {
      return fs.listStatus(directory);
    } catch (FileNotFoundException e) {
      return new FileStatus[0];
    }
  }

  private boolean hasNotChangedSince(FileStatus directory, long beforeMs) throws IOException {
    try {
      return newest(directory) < beforeMs;
    } catch (FileNotFoundException e) {
      return false; // its own attempt has ended meanwhile
    }
  }

  private long newest(FileStatus directory) throws IOException {
    long newest = directory.getModificationTime();
    for (RemoteIterator<LocatedFileStatus> i = fs.listFiles(directory.getPath(), true); i.hasNext(); ) {
      newest = Math.max(newest, i.next().getModificationTime());
    }
    return newest;
  }
}
