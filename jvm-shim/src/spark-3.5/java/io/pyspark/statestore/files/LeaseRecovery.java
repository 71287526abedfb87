package io.pyspark.statestore.files;

import java.io.IOException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/** A file system on which files have leases that can be recovered: in the Hadoop of Spark 3.5 that is HDFS itself. */
record LeaseRecovery(DistributedFileSystem fs) {
  /** The recovery of a file system; null where files have no leases. */
  static LeaseRecovery of(FileSystem fs) {
    return fs instanceof DistributedFileSystem hdfs ? new LeaseRecovery(hdfs) : null;
  }

  boolean isFileClosed(Path path) throws IOException {
    return fs.isFileClosed(path);
  }

  /** Whether the file is closed by now. */
  boolean recoverLease(Path path) throws IOException {
    return fs.recoverLease(path);
  }
}
