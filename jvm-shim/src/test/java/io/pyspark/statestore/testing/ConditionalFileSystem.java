package io.pyspark.statestore.testing;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;

/**
 * {@link ObjectStoreLikeFileSystem} under {@code conditional:}, which makes an object only if there is none, where it
 * is asked to, as S3A does since Hadoop 3.4.2: when the stream is closed, in one step.
 *
 * <p>Of the object that {@code fs.conditional.ignores} names, the store replaces another one all the same. Of that
 * which {@code fs.conditional.loses} names, the answer is lost, so that S3A asks once more, and is refused. At that
 * which {@code fs.conditional.interrupts} names, S3A's {@code close()} is interrupted, and returns without an object.
 */
public final class ConditionalFileSystem extends ObjectStoreLikeFileSystem {
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
  private static final String HEADER = "fs.s3a.create.header";
  private static final Map<String, Map<String, String>> METADATA = new ConcurrentHashMap<>();

  /** What S3A's exception is called. */
  public static final class RemoteFileChangedException extends PathIOException {
    private static final long serialVersionUID = 1;

    RemoteFileChangedException(Path path) {
      super(path.toString(), "412 Precondition Failed");
    }
  }

  @Override
  public String getScheme() {
    return "conditional";
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    return switch (capability) {
      case CONDITIONAL, HEADER, CommonPathCapabilities.ABORTABLE_STREAM -> true;
      default -> super.hasPathCapability(path, capability);
    };
  }

  @Override
  public FSDataOutputStreamBuilder<FSDataOutputStream, ?> createFile(Path path) {
    return new Builder(this, path).create().overwrite(true);
  }

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    serverCall("getFileStatus", path);
    getFileStatus(path);
    String value = METADATA.getOrDefault(path.toUri().getPath(), Map.of()).get(name);
    return value == null ? null : value.getBytes(StandardCharsets.UTF_8);
  }

  private boolean does(String what, Path path) {
    return path.getName().equals(getConf().get("fs.conditional." + what));
  }

  private final class Builder extends FSDataOutputStreamBuilder<FSDataOutputStream, Builder> {
    private final Path path;

    Builder(FileSystem fs, Path path) {
      super(fs, path);
      this.path = path;
    }

    @Override
    public Builder getThisBuilder() {
      return this;
    }

    @Override
    public FSDataOutputStream build() throws IOException {
      if (!getMandatoryKeys().contains(CONDITIONAL)) {
        return ConditionalFileSystem.this.create(path, true);
      }
      Map<String, String> metadata = new ConcurrentHashMap<>();
      for (String key : getMandatoryKeys()) {
        if (key.startsWith(HEADER + ".")) {
          metadata.put("header." + key.substring(HEADER.length() + 1), getOptions().get(key));
        }
      }
      return new FSDataOutputStream(new Upload(path, metadata), null);
    }
  }

  /** An object that appears when it is closed, if there is none. */
  private final class Upload extends OutputStream implements Abortable {
    private final Path path;
    private final Map<String, String> metadata;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private boolean closed;

    Upload(Path path, Map<String, String> metadata) {
      this.path = path;
      this.metadata = metadata;
    }

    @Override
    public void write(int b) {
      bytes.write(b);
    }

    @Override
    public void write(byte[] b, int offset, int length) {
      bytes.write(b, offset, length);
    }

    @Override
    public void close() throws IOException {
      if (closed) {
        return;
      }
      closed = true;
      serverCall("create", path);
      if (does("interrupts", path)) {
        Thread.currentThread().interrupt();
        return;
      }
      java.nio.file.Path target = pathToFile(path).toPath();
      Files.createDirectories(target.getParent());
      java.nio.file.Path part = Files.createTempFile(target.getParent().getParent(), ".upload-", ".part");
      Files.write(part, bytes.toByteArray());
      try {
        if (does("ignores", path)) {
          Files.move(part, target, StandardCopyOption.REPLACE_EXISTING);
        } else {
          Files.createLink(target, part);
          Files.delete(part);
        }
        METADATA.put(path.toUri().getPath(), metadata);
      } catch (FileAlreadyExistsException e) {
        Files.delete(part);
        throw new RemoteFileChangedException(path);
      }
      if (does("loses", path)) {
        throw new RemoteFileChangedException(path);
      }
    }

    @Override
    public AbortableResult abort() {
      boolean already = closed;
      closed = true;
      return new Aborted(already);
    }
  }

  private record Aborted(boolean alreadyClosed) implements Abortable.AbortableResult {
    @Override
    public IOException anyCleanupException() {
      return null;
    }
  }
}
