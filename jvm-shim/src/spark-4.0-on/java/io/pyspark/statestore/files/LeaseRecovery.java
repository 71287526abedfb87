package io.pyspark.statestore.files;

import java.io.IOException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LeaseRecoverable;
import org.apache.hadoop.fs.Path;

/** A file system on which files have leases that can be recovered: HDFS, and what is like it. */
record LeaseRecovery(LeaseRecoverable fs) {
  /** The recovery of a file system; null where files have no leases. */
  static LeaseRecovery of(FileSystem fs) {
    return fs instanceof LeaseRecoverable leases ? new LeaseRecovery(leases) : null;
  }

  boolean isFileClosed(Path path) throws IOException {
    return fs.isFileClosed(path);
  }

  /** Whether the file is closed by now. */
  boolean recoverLease(Path path) throws IOException {
    return fs.recoverLease(path);
  }
}
