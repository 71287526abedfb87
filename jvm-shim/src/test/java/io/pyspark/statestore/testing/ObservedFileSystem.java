package io.pyspark.statestore.testing;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The local disk, without {@code .crc} files, under a scheme of its own and with a hook around each call.
 *
 * <p>The hook sees each call of a user once. It does not see calls that the implementation makes to itself (create
 * looks for directories and makes them, rename looks), since HDFS and object stores answer the user's call in one
 * request.
 */
public abstract class ObservedFileSystem extends RawLocalFileSystem {
  /** An action that may fail with an IOException. */
  interface Io<T> {
    T run() throws IOException;
  }

  private static final ThreadLocal<Boolean> INSIDE = ThreadLocal.withInitial(() -> false);

  @Override
  public abstract String getScheme();

  @Override
  public URI getUri() {
    return URI.create(getScheme() + ":///");
  }

  // ---- what subclasses change -------------------------------------------------------------------------------------

  /** Runs a user's metadata call. */
  protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
    Counters.metadataCall(operation, path);
    return body.run();
  }

  /** Runs a call on a stream; the body returns the number of bytes that it read or wrote. */
  protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
    long bytes = body.run();
    Counters.add(operation, path, 1);
    if (bytes > 0) {
      Counters.add(operation + "_bytes", path, bytes);
    }
    if (operation.equals("read")) {
      Counters.transfer(path, bytes);
    } else if (operation.equals("hflush") || operation.equals("hsync")) {
      Counters.flush(operation, path);
    }
    return bytes;
  }

  /** Counts and delays a request that a real file system's client makes to its server by itself. */
  final void serverCall(String operation, Path path) throws IOException {
    if (!INSIDE.get()) {
      Counters.metadataCall(operation, path);
    }
  }

  /** Whether a file's first bytes cost a request of their own, as on HDFS. */
  protected boolean allocatesBlocks() {
    return false;
  }

  /** The stream that a user gets for a file that was created or opened for append. */
  protected ObservedOutputStream observe(Path path, FSDataOutputStream stream) {
    return new ObservedOutputStream(this, path, stream);
  }

  /** Moves a file or directory, and replaces what is there. */
  protected void move(Path source, Path target) throws IOException {
    Files.move(pathToFile(source).toPath(), pathToFile(target).toPath(), StandardCopyOption.REPLACE_EXISTING);
  }

  /** Opens a file for writing; parents are made if they are missing. */
  protected FSDataOutputStream createRaw(Path path, boolean overwrite, int bufferSize) throws IOException {
    return super.create(path, overwrite, bufferSize, (short) 1, getDefaultBlockSize(path), null);
  }

  // ---- every call, observed once
  // ------------------------------------------------------------------------------------

  final <T> T observed(String operation, Path path, Io<T> body) throws IOException {
    if (INSIDE.get()) {
      return body.run();
    }
    INSIDE.set(true);
    try {
      return around(operation, path, body);
    } finally {
      INSIDE.set(false);
    }
  }

  final long observedData(String operation, Path path, Io<Long> body) throws IOException {
    if (INSIDE.get()) {
      return body.run();
    }
    INSIDE.set(true);
    try {
      return aroundData(operation, path, body);
    } finally {
      INSIDE.set(false);
    }
  }

  private FSDataOutputStream output(String operation, Path path, Io<FSDataOutputStream> body) throws IOException {
    boolean outermost = !INSIDE.get();
    FSDataOutputStream raw = observed(operation, path, body);
    return outermost ? new FSDataOutputStream(observe(path, raw), null, raw.getPos()) : raw;
  }

  @Override
  public FSDataOutputStream create(
      Path f, boolean overwrite, int bufferSize, short replication, long blockSize, Progressable progress)
      throws IOException {
    return output("create", f, () -> createRaw(f, overwrite, bufferSize));
  }

  @Override
  public FSDataOutputStream create(
      Path f,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return create(f, overwrite, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path f,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return output(
        "create",
        f,
        () -> {
          requireParent(f);
          return createRaw(f, flags.contains(CreateFlag.OVERWRITE), bufferSize);
        });
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path f,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE);
    if (overwrite) {
      flags.add(CreateFlag.OVERWRITE);
    }
    return createNonRecursive(f, permission, flags, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream append(Path f, int bufferSize, Progressable progress) throws IOException {
    // A stream of RawLocalFileSystem's append() ignores hsync, so it is built here.
    return output(
        "append",
        f,
        () -> {
          long length = super.getFileStatus(f).getLen();
          return new FSDataOutputStream(createOutputStreamWithMode(f, true, null), null, length);
        });
  }

  @Override
  public FSDataInputStream open(Path f, int bufferSize) throws IOException {
    boolean outermost = !INSIDE.get();
    FSDataInputStream raw = observed("open", f, () -> super.open(f, bufferSize));
    return outermost ? new FSDataInputStream(new ObservedInputStream(this, f, raw)) : raw;
  }

  @Override
  public FileStatus getFileStatus(Path f) throws IOException {
    return observed("getFileStatus", f, () -> super.getFileStatus(f));
  }

  @Override
  public FileStatus getFileLinkStatus(Path f) throws IOException {
    return getFileStatus(f);
  }

  @Override
  public boolean supportsSymlinks() {
    return false;
  }

  @Override
  public boolean exists(Path f) throws IOException {
    return observed("getFileStatus", f, () -> super.exists(f));
  }

  @Override
  public FileStatus[] listStatus(Path f) throws IOException {
    return observed("listStatus", f, () -> super.listStatus(f));
  }

  @Override
  public boolean delete(Path f, boolean recursive) throws IOException {
    return observed("delete", f, () -> super.delete(f, recursive));
  }

  @Override
  public boolean mkdirs(Path f) throws IOException {
    return observed("mkdirs", f, () -> super.mkdirs(f));
  }

  @Override
  public boolean mkdirs(Path f, FsPermission permission) throws IOException {
    return observed("mkdirs", f, () -> super.mkdirs(f, permission));
  }

  @Override
  @Deprecated
  protected void primitiveMkdir(Path f, FsPermission permission, boolean createParent) throws IOException {
    observed(
        "mkdirs",
        f,
        () -> {
          super.primitiveMkdir(f, permission, createParent);
          return null;
        });
  }

  @Override
  public boolean rename(Path source, Path target) throws IOException {
    return observed(
        "rename",
        target,
        () -> {
          File from = pathToFile(source);
          File to = pathToFile(target);
          if (!from.exists() || !to.getAbsoluteFile().getParentFile().isDirectory()) {
            return false;
          }
          // As HDFS does it: into an existing directory, never over an existing file.
          if (to.isFile()) {
            return false;
          }
          move(source, to.isDirectory() ? new Path(target, source.getName()) : target);
          return true;
        });
  }

  @Override
  @SuppressWarnings("deprecation") // deprecated for users; it is how FileContext renames
  public void rename(Path source, Path target, Options.Rename... options) throws IOException {
    boolean overwrite = options != null && Set.of(options).contains(Options.Rename.OVERWRITE);
    observed(
        "rename",
        target,
        () -> {
          File to = pathToFile(target);
          if (!pathToFile(source).exists()) {
            throw new FileNotFoundException("rename source " + source + " not found");
          }
          requireParent(target);
          if (to.exists() && !overwrite) {
            throw new FileAlreadyExistsException("rename destination " + target + " already exists");
          }
          move(source, target);
          return null;
        });
  }

  @Override
  public boolean truncate(Path f, long length) throws IOException {
    return observed("other", f, () -> super.truncate(f, length));
  }

  @Override
  public void setTimes(Path f, long modified, long accessed) throws IOException {
    observed(
        "other",
        f,
        () -> {
          super.setTimes(f, modified, accessed);
          return null;
        });
  }

  @Override
  public void setPermission(Path f, FsPermission permission) throws IOException {
    observed(
        "other",
        f,
        () -> {
          if (getConf().get("fs." + getScheme() + ".chmod", "direct").equals("fork")) {
            // What file: does where Hadoop's native library is missing: one chmod process per file.
            super.setPermission(f, permission);
            return null;
          }
          ForklessRawLocalFileSystem.setBits(pathToFile(f), permission);
          return null;
        });
  }

  private void requireParent(Path f) throws IOException {
    File parent = pathToFile(f).getAbsoluteFile().getParentFile();
    if (!parent.exists()) {
      throw new FileNotFoundException("parent of " + f + " does not exist");
    }
    if (!parent.isDirectory()) {
      throw new ParentNotDirectoryException("parent of " + f + " is not a directory");
    }
  }

  // ---- reports, for py4j (static, so that each subclass reports for the whole process)
  // --------------------------------

  /** All counts as JSON: root label, thread kind (task, driver, maintenance, other), category, operation. */
  public static String snapshotJson() {
    return Counters.snapshotJson();
  }

  /** Forgets all counts; registered roots and delays stay. */
  public static void reset() {
    Counters.reset();
  }

  /** From now on counts of paths below {@code pathPrefix} go under this label; the longest matching prefix wins. */
  public static void registerRoot(String label, String pathPrefix) {
    Counters.registerRoot(label, pathPrefix);
  }

  /** Forgets all registered roots. */
  public static void clearRoots() {
    Counters.clearRoots();
  }

  /** From now on a stream reads so many bytes in a second; 0 is as fast as it goes. */
  public static void setBytesPerSecond(long bytes) {
    Counters.setBytesPerSecond(bytes);
  }

  /** Delays each metadata call of a category, or of all ("*"); writes and flushes never wait. */
  public static void setDelayMillis(String category, long millis) {
    Counters.setDelayMillis(category, millis);
  }
}
