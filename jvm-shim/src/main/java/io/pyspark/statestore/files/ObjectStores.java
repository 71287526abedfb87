package io.pyspark.statestore.files;

import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** Tells object stores from file systems. */
public final class ObjectStores {
  private ObjectStores() {}

  /**
   * Whether opening a file may cost requests that can be saved, a stream does one read after the other, and a rename is
   * a copy. None of that is so on a local disk and on HDFS.
   */
  public static boolean isOne(FileSystem fs) {
    FileSystem raw = fs instanceof LocalFileSystem local ? local.getRawFileSystem() : fs;
    return !(raw instanceof RawLocalFileSystem || LeaseRecovery.of(raw) != null);
  }
}
