package io.pyspark.statestore.sink.join;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * The files of a bin, one after the other. Most of the time that a small file takes is that its calls take, so small
 * files are read whole and ahead, several at the same time; large ones are read where they are.
 */
final class FetchedFiles implements AutoCloseable {
  /** So many files are fetched at the same time; with {@link #LARGEST} that bounds memory at 64 MiB a task. */
  private static final int AHEAD = 16;

  private static final long LARGEST = 4 << 20;

  private final Configuration conf;
  private final Queue<FileStatus> left;
  private final Queue<Future<FileStatus>> ahead = new ArrayDeque<>();
  private final ExecutorService threads;

  /** The paths of all that is in memory. */
  private final Set<Path> fetched = ConcurrentHashMap.newKeySet();

  private FileStatus current;
  private volatile boolean closed;

  FetchedFiles(List<FileStatus> files, Configuration conf) {
    this.conf = conf;
    this.left = new ArrayDeque<>(files);
    this.threads =
        Executors.newFixedThreadPool(
            Math.min(AHEAD, files.size()),
            task -> {
              Thread thread = new Thread(task, "file-sink-fetch");
              thread.setDaemon(true);
              return thread;
            });
  }

  /** The next file, or null. It can be read until this is called again. */
  FileStatus next() throws IOException {
    forgetCurrent();
    while (!left.isEmpty() && ahead.size() < AHEAD) {
      FileStatus file = left.remove();
      ahead.add(threads.submit(() -> fetch(file)));
    }
    if (ahead.isEmpty()) {
      return null;
    }
    try {
      current = ahead.remove().get();
      return current;
    } catch (ExecutionException e) {
      throw new IOException(e.getCause().getMessage(), e.getCause());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while files were fetched");
    }
  }

  private FileStatus fetch(FileStatus file) throws IOException {
    if (file.getLen() > LARGEST) {
      return file;
    }
    byte[] content = new byte[(int) file.getLen()];
    FileSystem fs = file.getPath().getFileSystem(conf);
    // Its length is known, so an object store need not be asked.
    try (FSDataInputStream in = FutureIO.awaitFuture(fs.openFile(file.getPath()).withFileStatus(file).build())) {
      in.readFully(0, content);
    }
    Path path = FetchedFileSystem.add(file.getPath().getName(), content);
    fetched.add(path);
    if (closed) {
      forget(path);
    }
    return new FileStatus(file.getLen(), false, 1, 1, 0, path);
  }

  /**
   * Whether a file that could not be understood can be read: then its storage is sound, and it is the file that is not.
   *
   * @param file as {@link #next} has given it
   */
  static boolean isSound(FileStatus file, Configuration conf) {
    if (FetchedFileSystem.holds(file.getPath())) {
      return true;
    }
    try (FSDataInputStream in = file.getPath().getFileSystem(conf).open(file.getPath())) {
      byte[] buffer = new byte[1 << 16];
      long length = 0;
      for (int read = in.read(buffer); read >= 0; read = in.read(buffer)) {
        length += read;
      }
      return length == file.getLen();
    } catch (IOException e) {
      return false;
    }
  }

  private void forgetCurrent() {
    if (current != null) {
      forget(current.getPath());
      current = null;
    }
  }

  private void forget(Path path) {
    if (fetched.remove(path)) {
      FetchedFileSystem.remove(path);
    }
  }

  /** Forgets all files; what is still being fetched forgets itself when it comes. */
  @Override
  public void close() {
    closed = true;
    threads.shutdownNow();
    fetched.forEach(this::forget);
  }
}
