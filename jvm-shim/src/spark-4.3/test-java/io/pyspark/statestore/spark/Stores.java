package io.pyspark.statestore.spark;

import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import scala.Option;

/** Makes the RocksDB of a store as the provider does, for tests that drive it step by step. */
public final class Stores {
  private Stores() {}

  /** With the options that a configuration has. */
  public static RocksDB make(String root, RocksDBConf conf, File local, Configuration hadoop, String name) {
    return new MergedRocksDBStateStoreProvider()
        .createRocksDB(root, conf, local, hadoop, name, false, false, 0, Option.empty(), Option.empty());
  }
}
