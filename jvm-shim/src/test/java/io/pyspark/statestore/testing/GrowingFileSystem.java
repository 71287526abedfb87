package io.pyspark.statestore.testing;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * The local disk under {@code growing:}, with files to which others append. A file grows right after it is opened; a
 * stream refuses to read a file that has grown since, as on ABFS; listings show old lengths, as on HDFS.
 */
public final class GrowingFileSystem extends RawLocalFileSystem {
  private static final Map<String, Queue<byte[]>> TO_COME = new ConcurrentHashMap<>();
  private static final Map<String, Long> LISTED = new ConcurrentHashMap<>();

  /** Appends these bytes to a file of this name right after it is opened for the next time. */
  public static void growWhenOpened(String name, byte[] bytes) {
    TO_COME.computeIfAbsent(name, n -> new ConcurrentLinkedQueue<>()).add(bytes);
  }

  /** From now on listings show a file of this name with this length. */
  public static void listWithLength(String name, long length) {
    LISTED.put(name, length);
  }

  @Override
  public String getScheme() {
    return "growing";
  }

  @Override
  public URI getUri() {
    return URI.create("growing:///");
  }

  @Override
  public FileStatus[] listStatus(Path directory) throws IOException {
    FileStatus[] found = super.listStatus(directory);
    for (int i = 0; i < found.length; i++) {
      FileStatus status = found[i];
      Long length = LISTED.get(status.getPath().getName());
      if (length != null) {
        found[i] =
            new FileStatus(length, false, 1, status.getBlockSize(), status.getModificationTime(), status.getPath());
      }
    }
    return found;
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    FSDataInputStream opened = super.open(path, bufferSize);
    FSDataInputStream stream = new FSDataInputStream(new Conditional(path, opened));
    byte[] more = TO_COME.getOrDefault(path.getName(), new ConcurrentLinkedQueue<>()).poll();
    if (more != null) {
      Files.write(pathToFile(path).toPath(), more, StandardOpenOption.APPEND);
    }
    return stream;
  }

  /** Reads while the file is as long as when it was opened. */
  private final class Conditional extends FSInputStream {
    private final Path path;
    private final FSDataInputStream in;
    private final long length;

    Conditional(Path path, FSDataInputStream in) {
      this.path = path;
      this.in = in;
      this.length = pathToFile(path).length();
    }

    private void check() throws IOException {
      if (pathToFile(path).length() != length) {
        throw new IOException("412 ConditionNotMet: " + path + " was changed since it was opened");
      }
    }

    @Override
    public int read() throws IOException {
      check();
      return in.read();
    }

    @Override
    public int read(byte[] bytes, int offset, int count) throws IOException {
      check();
      return in.read(bytes, offset, count);
    }

    @Override
    public int available() throws IOException {
      return in.available();
    }

    @Override
    public void seek(long position) throws IOException {
      in.seek(position);
    }

    @Override
    public long getPos() throws IOException {
      return in.getPos();
    }

    @Override
    public boolean seekToNewSource(long position) {
      return false;
    }

    @Override
    public void close() throws IOException {
      in.close();
    }
  }
}
