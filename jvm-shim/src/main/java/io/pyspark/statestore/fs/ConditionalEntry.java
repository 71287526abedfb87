package io.pyspark.statestore.fs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * An entry of a log that S3 makes if there is none, with one request. It is whole when it can be seen.
 *
 * <p>S3A repeats a request whose answer was lost, and would then be refused because of the object that it has made
 * itself. So each object says in its metadata who has made it.
 */
final class ConditionalEntry implements AtomicFile {
  /** An option and a capability of file systems. Hadoop has a constant for it from 3.4.2 on. */
  static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

  /** A capability of S3A, and the prefix of options for metadata of an object. */
  static final String HEADERS = "fs.s3a.create.header";

  private static final String WRITER = "pyspark-statestore-entry";

  /** S3A's names of metadata, if they are asked for as attributes of a file. */
  private static final String ATTRIBUTE = "header." + WRITER;

  /** What S3A throws where a condition does not hold. It is not on the class path here. */
  private static final String CHANGED = "RemoteFileChangedException";

  private final FileSystem fs;
  private final Path path;
  private final String writer = UUID.randomUUID().toString();
  private final FSDataOutputStream out;
  private boolean finished;

  ConditionalEntry(FileSystem fs, Path path) throws IOException {
    this.fs = fs;
    this.path = path;
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path);
    this.out = builder.create().recursive().must(CONDITIONAL, "true").must(HEADERS + "." + WRITER, writer).build();
  }

  @Override
  public OutputStream out() {
    return out;
  }

  @Override
  public void close() throws IOException {
    if (finished) {
      return;
    }
    try {
      if (isRefused() && !isOwn()) {
        throw new FileAlreadyExistsException(path + " exists: another driver has written it");
      }
    } finally {
      // S3A's close() may return from an interrupt as if the object were there.
      checkInterrupted();
    }
  }

  /** Closes the entry; whether there was one already. */
  boolean isRefused() throws IOException {
    finished = true;
    try {
      out.close();
      return false;
    } catch (IOException e) {
      if (e instanceof FileAlreadyExistsException
          || e instanceof java.nio.file.FileAlreadyExistsException
          || e.getClass().getSimpleName().equals(CHANGED)) {
        return true;
      }
      throw e;
    }
  }

  private void checkInterrupted() throws IOException {
    if (Thread.currentThread().isInterrupted() && !isOwn()) {
      throw new InterruptedIOException("Interrupted while " + path + " was written");
    }
  }

  /** Whether the object that is there is this one. */
  private boolean isOwn() throws IOException {
    boolean wasInterrupted = Thread.interrupted();
    try {
      return Arrays.equals(writer.getBytes(StandardCharsets.UTF_8), fs.getXAttr(path, ATTRIBUTE));
    } catch (FileNotFoundException e) {
      return false;
    } finally {
      if (wasInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  @Override
  public void cancel() {
    if (!finished) {
      finished = true;
      out.abort();
    }
  }
}
