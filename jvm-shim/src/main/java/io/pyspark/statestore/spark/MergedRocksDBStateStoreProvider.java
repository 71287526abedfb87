package io.pyspark.statestore.spark;

import io.pyspark.statestore.fs.Schemes;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import scala.Option;

/** The provider door for RocksDB: stock Spark over a merged file system. */
public class MergedRocksDBStateStoreProvider extends RocksDBStateStoreProvider {
  @Override
  public RocksDB createRocksDB(
      String dfsRootDir,
      RocksDBConf conf,
      File localRootDir,
      Configuration hadoopConf,
      String loggingId,
      boolean useColumnFamilies,
      boolean enableStateStoreCheckpointIds,
      int partitionId,
      Option<RocksDBEventForwarder> eventForwarder,
      Option<String> uniqueId) {
    Path merged = merged(new Path(dfsRootDir), hadoopConf);
    return super.createRocksDB(
        merged.toString(),
        conf,
        localRootDir,
        ProviderConf.forMergedScheme(hadoopConf, merged.toUri().getScheme()),
        loggingId,
        useColumnFamilies,
        enableStateStoreCheckpointIds,
        partitionId,
        eventForwarder,
        uniqueId);
  }

  private static Path merged(Path root, Configuration conf) {
    try {
      return Schemes.isMerged(root) ? root : Schemes.toMerged(root.getFileSystem(conf).makeQualified(root));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
