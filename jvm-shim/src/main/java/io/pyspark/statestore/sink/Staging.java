package io.pyspark.statestore.sink;

import io.pyspark.statestore.log.ObjectStores;
import io.pyspark.statestore.sink.Bins.Bin;
import io.pyspark.statestore.sink.JoinedFiles.Join;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
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
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The staging directory of one attempt at one batch: what is in it gets its final name, and the directory goes.
 *
 * <p><b>What is deleted, and why that is safe.</b> No list of a sink ever names a file below {@code _staging}, so no
 * reader misses one. An attempt deletes its own directory when it has committed or failed. A directory that is left over
 * goes when nothing in it has changed for the retention: a task that still writes to it would have changed it, and a
 * batch takes less than that. Where a directory cannot be listed, nothing is deleted.
 */
final class Staging {
  private static final Logger LOG = LoggerFactory.getLogger(Staging.class);
  private static final String ROOT = "_staging";
  private static final String JOINED = "_joined";
  private static final int THREADS = 8;
  private static final long SWEEP_INTERVAL_NANOS = TimeUnit.HOURS.toNanos(1);
  /** When this process last looked for left-over directories, by sink. */
  private static final Map<String, Long> LAST_SWEEP = new ConcurrentHashMap<>();

  private final Path sink;
  private final Path path;
  private final FileSystem fs;
  private final boolean renamesCheaply;

  Staging(String sink, String staging, Configuration conf) throws IOException {
    this.fs = new Path(sink).getFileSystem(conf);
    this.sink = fs.makeQualified(new Path(sink));
    this.path = fs.makeQualified(new Path(staging));
    this.renamesCheaply = !ObjectStores.isOne(fs);
  }

  /** A directory that no other attempt has. */
  static String newDirectory(String sink, String batch) {
    String name = batch + "-" + String.format("%016x", ThreadLocalRandom.current().nextLong());
    return SinkPaths.inside(new Path(sink), ROOT + "/" + name).toString();
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

  /**
   * What became of bins.
   *
   * @param published files in their final places
   * @param waiting files in the places where they wait
   */
  record Placed(List<FileStatus> published, List<FileStatus> waiting) {}

  /**
   * Joins the files of bins and brings all files to their places. Of a bin that waits, files that wait already stay as
   * they are.
   *
   * @param placed takes each file before it comes to its place
   */
  Placed place(List<Bin> bins, Compaction compaction, List<Path> placed) throws IOException {
    List<Join> joins = new ArrayList<>();
    List<Path> directories = new ArrayList<>();
    List<Move> moves = new ArrayList<>();
    for (Bin bin : bins) {
      List<FileStatus> files =
          bin.waits() ? bin.files().stream().filter(file -> !waits(file)).toList() : bin.files();
      Path directory = directory(bin, bin.waits() ? new Path(sink, Waiting.ROOT) : sink);
      if (files.size() == 1 || !compaction.canJoin()) {
        files.forEach(file -> moves.add(new Move(file, new Path(directory, nameOf(file)))));
      } else if (!files.isEmpty()) {
        // An object store would copy them to rename them, and nobody looks where files wait.
        boolean atOnce = bin.waits() || !renamesCheaply;
        joins.add(new Join(atOnce ? directory : directory(bin, new Path(path, JOINED)), files));
        directories.add(directory);
      }
    }
    List<FileStatus> there = new ArrayList<>();
    List<List<FileStatus>> made = join(joins, compaction);
    for (int at = 0; at < joins.size(); at++) {
      for (FileStatus file : made.get(at)) {
        if (file.getPath().getParent().equals(directories.get(at))) {
          placed.add(file.getPath());
          there.add(file);
        } else {
          moves.add(new Move(file, new Path(directories.get(at), file.getPath().getName())));
        }
      }
    }
    there.addAll(move(moves, placed));
    Map<Boolean, List<FileStatus>> byWaits = there.stream().collect(Collectors.partitioningBy(this::waits));
    return new Placed(byWaits.get(false), byWaits.get(true));
  }

  /** Another attempt may have left a copy of what waits under a name that the list did not take. */
  private String nameOf(FileStatus file) {
    String name = file.getPath().getName();
    return waits(file) ? JoinedFiles.newName(ThreadLocalRandom.current().nextLong(), 0, name) : name;
  }

  private boolean waits(FileStatus file) {
    return Waiting.holds(sink, file.getPath());
  }

  private List<List<FileStatus>> join(List<Join> joins, Compaction compaction) throws IOException {
    boolean done = false;
    try {
      List<List<FileStatus>> made = compaction.join(joins);
      done = true;
      return made;
    } finally {
      if (!done) {
        Predicate<Path> isStaging = directory -> SinkPaths.isBelow(path, directory);
        joins.stream().map(Join::directory).distinct().filter(isStaging.negate())
            .forEach(directory -> deleteMadeBy(compaction, directory));
      }
    }
  }

  /** Tasks that succeeded in a job that failed have written to where files are to be. */
  private void deleteMadeBy(Compaction compaction, Path directory) {
    try {
      for (FileStatus file : fs.listStatus(directory)) {
        if (compaction.hasMade(file.getPath().getName())) {
          fs.delete(file.getPath(), false);
        }
      }
    } catch (IOException | RuntimeException e) {
      LOG.debug("Files in {} that were made in vain could not be deleted; no list names them", directory, e);
    }
  }

  private static Path directory(Bin bin, Path root) {
    return SinkPaths.inside(root, bin.directory());
  }

  /** A file that is to be in another place. */
  private record Move(FileStatus file, Path to) {}

  private List<FileStatus> move(List<Move> moves, List<Path> placed) throws IOException {
    Set<Path> directories = new LinkedHashSet<>();
    moves.forEach(move -> directories.add(move.to().getParent()));
    inParallel(directories.stream().map(directory -> (Callable<Boolean>) () -> fs.mkdirs(directory)).toList());
    moves.forEach(move -> placed.add(move.to()));
    return inParallel(moves.stream().map(move -> (Callable<FileStatus>) () -> bring(move)).toList());
  }

  private FileStatus bring(Move move) throws IOException {
    return waits(move.file()) ? copy(move) : rename(move.file(), move.to());
  }

  /** What waits is needed again where the batch is not committed. */
  private FileStatus copy(Move move) throws IOException {
    Path copy = renamesCheaply ? new Path(path, JOINED + "/" + move.to().getName()) : move.to();
    FileUtil.copy(fs, move.file().getPath(), fs, copy, false, true, fs.getConf());
    FileStatus made = fs.getFileStatus(copy);
    if (made.getLen() != move.file().getLen()) {
      throw JoinedFiles.differs(copy, made.getLen(), move.file().getLen(), "bytes");
    }
    return renamesCheaply ? rename(made, move.to()) : made;
  }

  private FileStatus rename(FileStatus from, Path to) throws IOException {
    if (!fs.rename(from.getPath(), to)) {
      throw new IOException(from.getPath() + " could not be renamed to " + to);
    }
    if (!renamesCheaply) {
      return fs.getFileStatus(to);
    }
    return new FileStatus(
        from.getLen(), false, from.getReplication(), from.getBlockSize(), from.getModificationTime(), to);
  }

  /** Does all of it, or fails when none of it goes on. */
  private static <T> List<T> inParallel(List<Callable<T>> tasks) throws IOException {
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
  }

  /** Looks for what attempts that failed have left, once an hour. */
  void sweepIfDue(long retentionMs, Waiting waiting) throws IOException {
    long now = System.nanoTime();
    Long last = LAST_SWEEP.get(sink.toString());
    if (last == null || now - last >= SWEEP_INTERVAL_NANOS) {
      LAST_SWEEP.put(sink.toString(), now);
      sweep(System.currentTimeMillis() - retentionMs);
      waiting.sweep(fs, sink, System.currentTimeMillis() - retentionMs);
    }
  }

  /** Deletes the directories of other attempts in which nothing has changed since a time. */
  private void sweep(long beforeMs) throws IOException {
    for (FileStatus other : fs.listStatus(path.getParent())) {
      if (!other.getPath().equals(path) && newest(other) < beforeMs) {
        LOG.info("Deleting {}, which an attempt that failed has left", other.getPath());
        fs.delete(other.getPath(), true);
      }
    }
  }

  private long newest(FileStatus directory) throws IOException {
    long newest = directory.getModificationTime();
    for (RemoteIterator<LocatedFileStatus> i = fs.listFiles(directory.getPath(), true); i.hasNext();) {
      newest = Math.max(newest, i.next().getModificationTime());
    }
    return newest;
  }
}
