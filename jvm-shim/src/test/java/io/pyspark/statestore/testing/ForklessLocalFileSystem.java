package io.pyspark.statestore.testing;

import org.apache.hadoop.fs.LocalFileSystem;

/** Hadoop's {@code file:}, checksum files included, on {@link ForklessRawLocalFileSystem}. */
public final class ForklessLocalFileSystem extends LocalFileSystem {
  public ForklessLocalFileSystem() {
    super(new ForklessRawLocalFileSystem());
  }
}
