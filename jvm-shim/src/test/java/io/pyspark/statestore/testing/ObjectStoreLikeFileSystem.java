package io.pyspark.statestore.testing;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.stream.Stream;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The local disk under {@code objectstore:}, as restricted as S3A. An object appears whole, when its stream is closed;
 * there is no append and no truncate; rename copies; hflush and hsync do nothing, as {@code hasCapability} says.
 *
 * <p>As with S3A, hflush and hsync are silent by default and throw UnsupportedOperationException when {@code
 * fs.objectstore.downgrade.syncable.exceptions} is false. Directories are real, and stay when they are empty.
 */
public class ObjectStoreLikeFileSystem extends ObservedFileSystem {
  private static File uploads;

  @Override
  public String getScheme() {
    return "objectstore";
  }

  @Override
  protected FSDataOutputStream createRaw(Path path, boolean overwrite, int bufferSize) throws IOException {
    File target = pathToFile(path);
    if (target.isDirectory() || (target.exists() && !overwrite)) {
      throw new FileAlreadyExistsException(path + " exists" + (target.isDirectory() ? ", as a directory" : ""));
    }
    boolean silent = getConf().getBoolean("fs.objectstore.downgrade.syncable.exceptions", true);
    return new FSDataOutputStream(new Upload(target, silent), null);
  }

  @Override
  public FSDataOutputStream append(Path f, int bufferSize, Progressable progress) {
    throw new UnsupportedOperationException("append is not supported by " + getScheme() + ":");
  }

  @Override
  public boolean truncate(Path f, long length) {
    throw new UnsupportedOperationException("truncate is not supported by " + getScheme() + ":");
  }

  @Override
  public void concat(Path target, Path[] sources) {
    throw new UnsupportedOperationException("concat is not supported by " + getScheme() + ":");
  }

  @Override
  public void setPermission(Path f, FsPermission permission) {
    // An object store has none.
  }

  @Override
  protected void move(Path source, Path target) throws IOException {
    java.nio.file.Path from = pathToFile(source).toPath();
    java.nio.file.Path to = pathToFile(target).toPath();
    long copied = 0;
    try (Stream<java.nio.file.Path> all = Files.walk(from)) {
      for (java.nio.file.Path each : (Iterable<java.nio.file.Path>) all::iterator) {
        java.nio.file.Path copy = to.resolve(from.relativize(each).toString());
        if (Files.isDirectory(each)) {
          Files.createDirectories(copy);
        } else {
          Files.copy(each, copy, StandardCopyOption.REPLACE_EXISTING);
          copied += Files.size(each);
        }
      }
    }
    super.delete(source, true);
    Counters.add("rename_copied_bytes", target, copied);
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    return switch (capability) {
      case CommonPathCapabilities.FS_APPEND,
          CommonPathCapabilities.FS_CONCAT,
          CommonPathCapabilities.FS_TRUNCATE,
          CommonPathCapabilities.FS_PERMISSIONS,
          CommonPathCapabilities.FS_PATHHANDLES ->
          false;
      default -> super.hasPathCapability(path, capability);
    };
  }

  /** The directory of unfinished objects, which no listing of this file system shows. */
  private static synchronized File uploadDirectory() throws IOException {
    if (uploads == null) {
      File directory = Files.createTempDirectory("objectstore-uploads-").toFile();
      Runtime.getRuntime().addShutdownHook(new Thread(() -> deleteAll(directory)));
      uploads = directory;
    }
    return uploads;
  }

  private static void deleteAll(File directory) {
    File[] files = directory.listFiles();
    for (File file : files == null ? new File[0] : files) {
      file.delete();
    }
    directory.delete();
  }

  /** An object that is being written: to a file that no listing shows, which close() moves to its place. */
  private static final class Upload extends OutputStream implements Syncable, StreamCapabilities, Abortable {
    private final File target;
    private final boolean silentSync;
    private final File part;
    private final OutputStream out;
    private boolean closed;

    Upload(File target, boolean silentSync) throws IOException {
      this.target = target;
      this.silentSync = silentSync;
      this.part = File.createTempFile("upload-", ".part", uploadDirectory());
      this.out = new BufferedOutputStream(Files.newOutputStream(part.toPath()), 64 * 1024);
    }

    @Override
    public void write(int b) throws IOException {
      requireOpen();
      out.write(b);
    }

    @Override
    public void write(byte[] b, int off, int len) throws IOException {
      requireOpen();
      out.write(b, off, len);
    }

    private void requireOpen() throws IOException {
      if (closed) {
        throw new IOException("upload of " + target + " is already closed");
      }
    }

    @Override
    public void hflush() {
      unsupportedSync("hflush");
    }

    @Override
    public void hsync() {
      unsupportedSync("hsync");
    }

    private void unsupportedSync(String call) {
      if (!silentSync) {
        throw new UnsupportedOperationException(call + ": streams of objectstore: are not Syncable");
      }
    }

    @Override
    public void close() throws IOException {
      if (closed) {
        return;
      }
      closed = true;
      out.close();
      if (target.isDirectory()) {
        throw new FileNotFoundException(target + " is a directory");
      }
      Files.createDirectories(target.getAbsoluteFile().getParentFile().toPath());
      try {
        Files.move(part.toPath(), target.toPath(), StandardCopyOption.ATOMIC_MOVE);
      } catch (AtomicMoveNotSupportedException e) {
        // The temp folder is on another disk: bring the bytes over first, then show them in one step.
        File beside = new File(target.getParentFile(), "." + part.getName());
        Files.move(part.toPath(), beside.toPath());
        Files.move(beside.toPath(), target.toPath(), StandardCopyOption.ATOMIC_MOVE);
      }
    }

    @Override
    public AbortableResult abort() {
      boolean already = closed;
      closed = true;
      IOException failure = null;
      try {
        out.close();
        Files.deleteIfExists(part.toPath());
      } catch (IOException e) {
        failure = e;
      }
      return new Aborted(already, failure);
    }

    @Override
    public boolean hasCapability(String capability) {
      return capability.equalsIgnoreCase(StreamCapabilities.ABORTABLE_STREAM);
    }
  }

  private record Aborted(boolean alreadyClosed, IOException anyCleanupException) implements Abortable.AbortableResult {}
}
