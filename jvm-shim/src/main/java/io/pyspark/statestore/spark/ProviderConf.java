package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.fs.MergedCheckpointFileManager;
import io.pyspark.statestore.fs.MergedFileSystem;
import io.pyspark.statestore.fs.MergedFiles;
import io.pyspark.statestore.fs.Schemes;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.internal.SQLConf;

/** Makes the Hadoop configuration in which Spark's stock stores use the merged file manager. */
final class ProviderConf {
  private ProviderConf() {}

  /**
   * Copies {@code conf} and sets the merged file manager, for a store that keeps its plain location.
   *
   * @throws IllegalArgumentException for invalid options. It comes at once, because Spark keeps a provider whose file
   *     manager fails later, and fails again whenever it closes that provider
   */
  static Configuration mergingPlainPaths(Configuration conf) {
    try {
      MergedFileSystem.checkedOptions(conf);
    } catch (IOException e) {
      throw new IllegalArgumentException(e.getMessage(), e);
    }
    Configuration copy = new Configuration(conf);
    String key = SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS().parent().key();
    String own = MergedCheckpointFileManager.class.getName();
    String users = copy.get(key);
    if (users != null && !users.equals(own)) {
      copy.set(Options.PREFIX + "fileManagerClass", users);
    }
    copy.set(key, own);
    copy.setBoolean(MergedFiles.MERGE_PLAIN_PATHS, true);
    return copy;
  }

  /** The options, which {@link #mergingPlainPaths} has checked. */
  static Options options(Configuration conf) {
    try {
      return Options.from(conf);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The merged name of a store's directory: RocksDB copies SSTs through the Hadoop file system of that name. */
  static Path mergedRoot(String directory, Configuration conf) {
    Path root = new Path(directory);
    try {
      return Schemes.isMerged(root) ? root : Schemes.toMerged(root.getFileSystem(conf).makeQualified(root));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
