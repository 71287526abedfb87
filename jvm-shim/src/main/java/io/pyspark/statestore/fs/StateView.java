package io.pyspark.statestore.fs;

import io.pyspark.statestore.StateFileNotFoundException;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.write.LogOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * One state path as Spark sees it. The merged log is asked first and the real file system after it, so that a
 * checkpoint that stock Spark began is read where it is, and deletes reach its real files too (rule 10).
 *
 * <p>A view is made once for each call of Spark's, so the path is parsed once. What it answers is as new as the log's
 * index; {@link #ensureFresh} refreshes that first where the call needs it.
 */
final class StateView {
  private static final long BLOCK_SIZE = 128L << 20;

  private final MergedLog log;
  private final FileSystem real;
  private final Path realPath;
  private final String relative;
  private final boolean isFile;
  private final String queryRunId;
  private final UnaryOperator<Path> named;

  /**
   * @param real the file system below
   * @param queryRunId of the run for which it is made; may be empty
   * @param named turns a real path into the name that the caller knows it by
   */
  StateView(MergedLog log, FileSystem real, StatePath path, String queryRunId, UnaryOperator<Path> named) {
    this.log = log;
    this.real = real;
    this.realPath = path.path();
    this.relative = path.relative();
    this.isFile = path.isFile();
    this.queryRunId = queryRunId;
    this.named = named;
  }

  /** Whether the path is named like a state file; else it is a directory's. */
  boolean isFile() {
    return isFile;
  }

  /** Makes what this view answers as new as the current thread needs it. */
  void ensureFresh() throws IOException {
    ensureFresh(null);
  }

  /** As {@link #ensureFresh()}; a thread outside of a task uses {@code fallback}, where it is not null. */
  void ensureFresh(FreshnessKey fallback) throws IOException {
    Freshness.ensure(log, relative, fallback);
  }

  // ---- files

  LogOutputStream create(boolean overwrite) throws IOException {
    if (!overwrite && fileExists()) {
      throw new FileAlreadyExistsException(named.apply(realPath) + " exists already");
    }
    makeDirectoryOfSnapshot();
    return log.create(relative, queryRunId);
  }

  /**
   * Before Spark 4.2 RocksDB makes a store's directory only before a changelog or an empty snapshot, since a file
   * system makes the directories of a file by itself. Without it, Spark's state reader would leave the partition out.
   */
  private void makeDirectoryOfSnapshot() throws IOException {
    int name = relative.lastIndexOf('/');
    String directory = name < 0 ? "" : relative.substring(0, name);
    if (relative.endsWith(".zip") && !log.index().isDirectory(directory)) {
      makeOnce(directory, realPath.getParent());
    }
  }

  FSDataInputStream open() throws IOException {
    Segment segment = log.find(relative);
    if (segment == null && isFile && !log.mayHavePlainFiles()) {
      segment = log.findAfterRefresh(relative);
      if (segment == null) {
        throw missing();
      }
    }
    return segment == null ? openPlain() : new FSDataInputStream(log.open(segment));
  }

  private FSDataInputStream openPlain() throws IOException {
    try {
      return real.open(realPath);
    } catch (FileNotFoundException e) {
      Segment segment = log.findAfterRefresh(relative);
      if (segment == null) {
        throw isFile ? missing() : e;
      }
      return new FSDataInputStream(log.open(segment));
    }
  }

  /**
   * Copies the file's segment to the local disk.
   *
   * @return false where the file has no segment; nothing is written then
   */
  boolean copyTo(java.nio.file.Path local) throws IOException {
    Segment segment = log.find(relative);
    if (segment == null) {
      return false;
    }
    log.copyTo(segment, local);
    return true;
  }

  /** As {@link MergedLog#stage}. */
  boolean stage(java.nio.file.Path local) throws IOException {
    return log.stage(relative, local);
  }

  /**
   * The error that says that the file is nowhere, a {@link StateFileNotFoundException}. {@link MergedFileSystem} throws
   * it, and has to load in the wrong Spark, too, where the class of the error cannot: the JVM loads the declared type
   * of what is thrown.
   */
  FileNotFoundException missing() {
    return log.missing(relative);
  }

  boolean fileExists() throws IOException {
    return log.find(relative) != null || log.mayHavePlainFiles() && real.exists(realPath);
  }

  void deleteFile() throws IOException {
    log.delete(relative);
    if (log.mayHavePlainFiles()) {
      real.delete(realPath, false);
    }
  }

  // ---- files and directories

  boolean exists() throws IOException {
    if (log.find(relative) != null || isKnownDirectory()) {
      return true;
    }
    // Where all state is merged, the real file system is not asked for a store's empty directory: Spark only makes it.
    boolean storeDirectory = !isFile && relative.indexOf('/') > 0;
    return (log.mayHavePlainFiles() || !isFile && !storeDirectory) && real.exists(realPath);
  }

  FileStatus status() throws IOException {
    Segment segment = log.find(relative);
    if (segment != null) {
      return fileStatus(realPath, segment);
    }
    if (isKnownDirectory()) {
      return directoryStatus(realPath);
    }
    if (isFile && !log.mayHavePlainFiles()) {
      throw new FileNotFoundException(named.apply(realPath) + " does not exist");
    }
    FileStatus status = real.getFileStatus(realPath);
    status.setPath(named.apply(status.getPath()));
    return status;
  }

  FileStatus[] list() throws IOException {
    Segment segment = log.find(relative);
    if (segment != null) {
      return new FileStatus[] {fileStatus(realPath, segment)};
    }
    Map<String, FileStatus> found = new LinkedHashMap<>();
    boolean known = isKnownDirectory();
    if (log.mayHavePlainFiles() || !known || relative.indexOf('/') < 0) {
      try {
        for (FileStatus status : real.listStatus(realPath)) {
          status.setPath(named.apply(status.getPath()));
          found.put(status.getPath().getName(), status);
        }
      } catch (FileNotFoundException e) {
        if (!known) {
          throw e;
        }
      }
    }
    for (String name : log.index().subdirectories(relative)) {
      found.putIfAbsent(name, directoryStatus(new Path(realPath, name)));
    }
    Set<String> hidden = log.unpublished(relative);
    for (Segment live : log.index().list(relative)) {
      if (hidden.contains(live.path())) {
        continue;
      }
      Path path = new Path(realPath, live.path().substring(relative.length() + 1));
      found.put(path.getName(), fileStatus(path, live));
    }
    return found.values().toArray(FileStatus[]::new);
  }

  /** Makes the real directory, once: Spark's state reader lists partitions on the real file system. */
  boolean mkdirs() throws IOException {
    return makeOnce(relative, realPath);
  }

  private boolean makeOnce(String directory, Path realDirectory) throws IOException {
    boolean isThere = log.knownDirectories().contains(directory) || real.mkdirs(realDirectory);
    if (isThere) {
      log.knownDirectories().add(directory);
    }
    return isThere;
  }

  boolean deleteDirectory(boolean recursive) throws IOException {
    boolean any = !log.index().isDirectory(relative);
    if (!any && !recursive) {
      throw new IOException(named.apply(realPath) + " is not empty");
    }
    boolean deleted = log.deleteBelow(relative);
    log.knownDirectories().removeIf(d -> d.equals(relative) || d.startsWith(relative + "/"));
    return real.delete(realPath, recursive) || deleted;
  }

  private boolean isKnownDirectory() {
    return log.knownDirectories().contains(relative) || log.index().isDirectory(relative);
  }

  private FileStatus fileStatus(Path path, Segment segment) {
    return new FileStatus(segment.length(), false, 1, BLOCK_SIZE, segment.writtenAtMs(), named.apply(path));
  }

  private FileStatus directoryStatus(Path path) {
    return new FileStatus(0, true, 1, 0, 0, named.apply(path));
  }
}
