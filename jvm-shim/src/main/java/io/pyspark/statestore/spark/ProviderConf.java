package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.fs.MergedCheckpointFileManager;
import io.pyspark.statestore.fs.Schemes;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.internal.SQLConf;

/** Hadoop configurations in which Spark's stock stores use the merged file manager. */
final class ProviderConf {
  private ProviderConf() {}

  /** For a store whose location has a merged scheme. */
  static Configuration forMergedScheme(Configuration conf, String scheme) {
    return Schemes.withClasses(withManager(conf), scheme);
  }

  /** For a store that keeps its plain location. */
  static Configuration forPlainPaths(Configuration conf) {
    Configuration copy = withManager(conf);
    copy.setBoolean(MergedCheckpointFileManager.MERGE_PLAIN_PATHS, true);
    return copy;
  }

  private static Configuration withManager(Configuration conf) {
    Configuration copy = new Configuration(conf);
    String key = SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS().parent().key();
    String own = MergedCheckpointFileManager.class.getName();
    String users = copy.get(key);
    if (users != null && !users.equals(own)) {
      copy.set(Options.PREFIX + "fileManagerClass", users);
    }
    copy.set(key, own);
    return copy;
  }
}
