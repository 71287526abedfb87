package io.pyspark.statestore.testing;

import java.io.EOFException;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A store whose objects have versions, on the local disk, under whatever scheme it is registered for: what Hadoop's
 * clients of Azure and Google have in common. A stream that reads is bound to the version that it has opened. Several
 * processes see the same objects. To {@code instanceof} this is no local disk.
 */
public abstract class CloudLikeFileSystem extends FileSystem {
  private static final String HIDDEN = ".upload-";
  private static final AtomicInteger COMMITS_LEFT = new AtomicInteger();
  private static volatile String opened;
  private static volatile FileSystem committing;
  private static volatile String committed;

  private Disk disk;
  private URI uri;

  /** What is kept: whole objects, by their paths. */
  private final class Disk extends ForklessRawLocalFileSystem {
    @Override
    public URI getUri() {
      return uri;
    }
  }

  /**
   * From now on, each time an object is opened whose name ends so, a state file is committed before its first byte is
   * read, so many times: {@code <path>1.changelog}, {@code <path>2.changelog} and so on.
   */
  public static void commitWhenOpened(String name, FileSystem fs, String path, int times) {
    opened = name;
    committing = fs;
    committed = path;
    COMMITS_LEFT.set(times);
  }

  /** How many of the commits of {@link #commitWhenOpened} have not come. */
  public static int commitsLeft() {
    return COMMITS_LEFT.get();
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    uri = URI.create(name.getScheme() + ":///");
    super.initialize(name, conf);
    setConf(conf);
    disk = new Disk();
    disk.initialize(uri, conf);
  }

  @Override
  public String getScheme() {
    return uri.getScheme();
  }

  @Override
  public URI getUri() {
    return uri;
  }

  /** A setting of this store, below its scheme. */
  final String key(String name) {
    return "fs." + getScheme() + "." + name;
  }

  /** A stream that writes an object. */
  protected abstract FSDataOutputStream write(Path path, File target) throws IOException;

  /** What a read says of an object that has another version by now; null where that does not matter. */
  protected abstract IOException changed(Path path);

  /** How many bytes a stream says are left; 0 where it does not tell. */
  protected abstract long available(long left);

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    File target = file(path);
    if (target.isDirectory() || target.exists() && !overwrite) {
      throw new FileAlreadyExistsException(path + " exists");
    }
    Files.createDirectories(target.getParentFile().toPath());
    return write(path, target);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
    throw new UnsupportedOperationException("append is not used");
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    FSDataInputStream stream = new FSDataInputStream(new OfOneVersion(path, file(path)));
    String name = opened;
    if (name != null && path.getName().endsWith(name) && COMMITS_LEFT.get() > 0) {
      int number = COMMITS_LEFT.getAndDecrement();
      Storm.write(committing, new Path(committed + number + ".changelog"), new byte[] {(byte) number});
    }
    return stream;
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    return disk.rename(from, to);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    return disk.delete(path, recursive);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    return Arrays.stream(disk.listStatus(path))
        .filter(status -> !status.getPath().getName().startsWith(HIDDEN))
        .toArray(FileStatus[]::new);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    return disk.getFileStatus(path);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    return disk.mkdirs(path);
  }

  @Override
  public void setWorkingDirectory(Path directory) {
    disk.setWorkingDirectory(directory);
  }

  @Override
  public Path getWorkingDirectory() {
    return disk.getWorkingDirectory();
  }

  final File file(Path path) {
    return disk.pathToFile(path);
  }

  /** What changes with each change of an object: its eTag, or its generation. */
  static String version(File file) throws IOException {
    try {
      BasicFileAttributes found = Files.readAttributes(file.toPath(), BasicFileAttributes.class);
      return found.fileKey() + "-" + found.size() + "-" + found.lastModifiedTime();
    } catch (NoSuchFileException e) {
      throw (FileNotFoundException) new FileNotFoundException("404: " + file).initCause(e);
    }
  }

  /** A file that no listing shows, to be moved to its place. */
  static File hidden(File target) throws IOException {
    return File.createTempFile(HIDDEN, "", target.getParentFile());
  }

  /** Shows a whole object in one step. */
  static void show(File hidden, File target) throws IOException {
    Files.move(hidden.toPath(), target.toPath(), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }

  /** Reads an object while it has the version that it had when it was opened. */
  private final class OfOneVersion extends FSInputStream {
    private final Path path;
    private final File file;
    private final String version;
    private final long length;
    private long position;
    private boolean closed;

    OfOneVersion(Path path, File file) throws IOException {
      this.path = path;
      this.file = file;
      this.version = version(file);
      this.length = file.length();
    }

    @Override
    public synchronized int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public synchronized int read(byte[] bytes, int offset, int count) throws IOException {
      if (closed) {
        throw new IOException("The stream is closed");
      }
      if (count == 0) {
        return 0;
      }
      if (position >= length) {
        return -1;
      }
      if (!version(file).equals(version)) {
        IOException failure = changed(path);
        if (failure != null) {
          throw failure;
        }
      }
      try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
        in.seek(position);
        int read = in.read(bytes, offset, (int) Math.min(count, length - position));
        position += Math.max(0, read);
        return read;
      }
    }

    @Override
    public synchronized int available() {
      return (int) Math.min(Integer.MAX_VALUE, CloudLikeFileSystem.this.available(length - position));
    }

    @Override
    public synchronized void seek(long to) throws IOException {
      if (to < 0 || to > length) {
        throw new EOFException("Position " + to + " of " + length);
      }
      position = to;
    }

    @Override
    public synchronized long getPos() {
      return position;
    }

    @Override
    public boolean seekToNewSource(long to) {
      return false;
    }

    @Override
    public synchronized void close() {
      closed = true;
    }
  }
}
