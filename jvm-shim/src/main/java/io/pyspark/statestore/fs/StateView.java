package io.pyspark.statestore.fs;

import io.pyspark.statestore.log.LogOutputStream;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.Segment;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * One state path as Spark sees it: the merged log first, the real file system after it, so that a checkpoint that stock
 * Spark began is read where it is, and deletes reach real files too (rule 10).
 */
final class StateView {
  private static final long BLOCK_SIZE = 128L << 20;

  private final MergedLog log;
  private final FileSystem real;
  private final Path realPath;
  private final String relative;
  private final boolean isFile;
  private final UnaryOperator<Path> named;

  /**
   * A view of one path.
   *
   * @param real the file system below
   * @param realPath the path on it
   * @param named turns a real path into the name that the caller knows it by
   */
  StateView(MergedLog log, FileSystem real, Path realPath, StatePath path, UnaryOperator<Path> named) {
    this.log = log;
    this.real = real;
    this.realPath = realPath;
    this.relative = path.relative();
    this.isFile = path.isFile();
    this.named = named;
  }

  // ---- files

  LogOutputStream create(boolean overwrite) throws IOException {
    if (!overwrite && fileExists()) {
      throw new FileAlreadyExistsException(named.apply(realPath) + " exists already");
    }
    return log.create(relative);
  }

  FSDataInputStream open() throws IOException {
    Segment segment = log.find(relative);
    if (segment == null && isFile && !log.mayHavePlainFiles()) {
      segment = log.findAfterRefresh(relative);
      if (segment == null) {
        throw log.missing(relative);
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
        throw isFile ? log.missing(relative) : e;
      }
      return new FSDataInputStream(log.open(segment));
    }
  }

  Segment segment() {
    return log.find(relative);
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
    // Where nothing is plain, a store's directory that holds nothing need not be asked for: Spark would only make it.
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
    for (Segment live : log.index().list(relative)) {
      Path path = new Path(realPath, live.path().substring(relative.length() + 1));
      found.put(path.getName(), fileStatus(path, live));
    }
    return found.values().toArray(FileStatus[]::new);
  }

  /** Makes a real directory too, once: Spark's state reader lists partitions on the real file system. */
  boolean mkdirs() throws IOException {
    if (log.knownDirectories().contains(relative)) {
      return true;
    }
    boolean made = real.mkdirs(realPath);
    if (made) {
      log.knownDirectories().add(relative);
    }
    return made;
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
