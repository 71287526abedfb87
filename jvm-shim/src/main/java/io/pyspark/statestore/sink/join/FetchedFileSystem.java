package io.pyspark.statestore.sink.join;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Files of this process's memory. A format's reader only takes paths; so what {@link FetchedFiles} has fetched gets a
 * path of this file system, for as long as it is read.
 */
public final class FetchedFileSystem extends FileSystem {
  private static final String SCHEME = "pss-fetched";
  private static final Map<String, byte[]> CONTENTS = new ConcurrentHashMap<>();
  private static final AtomicLong NUMBER = new AtomicLong();

  private URI uri;

  /** Makes the file system known to whoever opens a path with these settings. */
  static void enterIn(Configuration conf) {
    conf.setClass("fs." + SCHEME + ".impl", FetchedFileSystem.class, FileSystem.class);
  }

  /** Gives bytes a path, with the same name as their file has, because endings of names mean something. */
  static Path add(String name, byte[] content) {
    Path path = new Path(SCHEME + ":///" + NUMBER.incrementAndGet() + "/" + name);
    CONTENTS.put(path.toUri().getPath(), content);
    return path;
  }

  /** Whether a path is one of these. */
  static boolean holds(Path path) {
    return SCHEME.equals(path.toUri().getScheme());
  }

  /** Forgets what is at a path; other paths are left alone. */
  static void remove(Path path) {
    CONTENTS.remove(path.toUri().getPath());
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    uri = name;
  }

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public URI getUri() {
    return uri;
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    return new FSDataInputStream(new Bytes(content(path)));
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    return new FileStatus(content(path).length, false, 1, 1, 0, makeQualified(path));
  }

  private static byte[] content(Path path) throws FileNotFoundException {
    byte[] content = CONTENTS.get(path.toUri().getPath());
    if (content == null) {
      throw new FileNotFoundException(path + " is not read any more");
    }
    return content;
  }

  /** A file's bytes as Hadoop wants them. */
  private static final class Bytes extends FSInputStream {
    private final byte[] content;
    private int position;

    Bytes(byte[] content) {
      this.content = content;
    }

    @Override
    public int read() {
      return position < content.length ? content[position++] & 0xff : -1;
    }

    @Override
    public int read(byte[] buffer, int offset, int length) {
      if (length == 0) {
        return 0;
      }
      int read = Math.min(length, content.length - position);
      if (read <= 0) {
        return -1;
      }
      System.arraycopy(content, position, buffer, offset, read);
      position += read;
      return read;
    }

    @Override
    public void seek(long to) throws IOException {
      if (to < 0 || to > content.length) {
        throw new EOFException("There is no position " + to + " in " + content.length + " bytes");
      }
      position = (int) to;
    }

    @Override
    public long getPos() {
      return position;
    }

    @Override
    public boolean seekToNewSource(long to) {
      return false;
    }
  }

  // ---- files are only read here

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress) {
    throw new UnsupportedOperationException(SCHEME);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
    throw new UnsupportedOperationException(SCHEME);
  }

  @Override
  public boolean rename(Path from, Path to) {
    throw new UnsupportedOperationException(SCHEME);
  }

  @Override
  public boolean delete(Path path, boolean recursive) {
    throw new UnsupportedOperationException(SCHEME);
  }

  @Override
  public FileStatus[] listStatus(Path path) {
    throw new UnsupportedOperationException(SCHEME);
  }

  @Override
  public void setWorkingDirectory(Path path) {
    throw new UnsupportedOperationException(SCHEME);
  }

  @Override
  public Path getWorkingDirectory() {
    return new Path(SCHEME + ":///");
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) {
    throw new UnsupportedOperationException(SCHEME);
  }
}
