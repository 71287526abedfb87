package io.pyspark.statestore.fs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An entry of a log that is written to a temporary object and renamed, as Spark does it, and under Spark's names.
 *
 * <p>Spark goes through {@code FileContext}, which looks three times at the source, the target and its directory. Only
 * the last look counts, right before the copy: S3A's own in {@code rename}, which is the same here. It fails where the
 * target is there.
 */
final class RenamedEntry implements AtomicFile {
  private static final Logger LOG = LoggerFactory.getLogger(RenamedEntry.class);

  /** An option of S3A from Hadoop 3.3.5 on: nobody else has the name of a temporary object. */
  private static final String CREATE_UNCHECKED = "fs.s3a.create.performance";

  private final FileSystem fs;
  private final Path path;
  private final Path temporary;
  private final FSDataOutputStream out;
  private boolean finished;

  RenamedEntry(FileSystem fs, Path path) throws IOException {
    this.fs = fs;
    this.path = path;
    this.temporary = new Path(path.getParent(), "." + path.getName() + "." + UUID.randomUUID() + ".tmp");
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(temporary);
    this.out = builder.recursive().overwrite(true).opt(CREATE_UNCHECKED, "true").build();
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
    finished = true;
    out.close();
    try {
      if (!fs.rename(temporary, path)) {
        throw notRenamed();
      }
    } catch (FileAlreadyExistsException e) {
      delete();
      throw e;
    }
  }

  private IOException notRenamed() throws IOException {
    if (fs.exists(path)) {
      return new FileAlreadyExistsException(path + " exists: another driver has written it");
    }
    return fs.exists(temporary)
        ? new IOException("Could not rename " + temporary + " to " + path)
        : new FileNotFoundException(temporary + " is not there, so it could not be renamed to " + path);
  }

  @Override
  public void cancel() {
    if (finished) {
      return;
    }
    finished = true;
    try {
      out.close();
    } catch (IOException e) {
      LOG.info("Could not close {}, which nobody needs", temporary, e);
    }
    delete();
  }

  private void delete() {
    try {
      fs.delete(temporary, false);
    } catch (IOException e) {
      LOG.info("{} stays, which nobody needs", temporary, e);
    }
  }
}
