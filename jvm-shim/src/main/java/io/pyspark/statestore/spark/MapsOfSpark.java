package io.pyspark.statestore.spark;

import io.pyspark.statestore.heap.MapFactoryHook;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Says once in a process that heap stores have Spark's own maps, where others were asked for. */
final class MapsOfSpark {
  private static final Logger LOG = LoggerFactory.getLogger(MapsOfSpark.class);
  private static final AtomicBoolean WARNED = new AtomicBoolean();
  private static final AtomicBoolean WARNED_OF_SPILL = new AtomicBoolean();

  private MapsOfSpark() {}

  /** Whether the option asks for maps that share their rows. */
  static boolean areUnwanted(Configuration conf) {
    return ProviderConf.options(conf).heapCopyOnWrite();
  }

  /** For a store that has maps of Spark's. */
  static void warnIfSpillIsWanted(Configuration conf) {
    if (ProviderConf.options(conf).heapSpill() && WARNED_OF_SPILL.compareAndSet(false, true)) {
      LOG.warn(
          "heap.spill=auto has no effect here: Spark's own maps have all rows in memory. What to do: use Spark 4.2 or"
              + " newer with heap.copyOnWrite=true, or RocksDB for state that does not fit into memory");
    }
  }

  /** For a Spark whose maps cannot be replaced. */
  static void warnIfUnwanted(Configuration conf) {
    warnIfSpillIsWanted(conf);
    if (areUnwanted(conf)) {
      warn(MapFactoryHook.whatIsMissing(HDFSBackedStateStoreProvider.class));
    }
  }

  /**
   * @param missing what Spark does not have
   */
  static void warn(String missing) {
    if (WARNED.compareAndSet(false, true)) {
      LOG.warn(
          "Copy-on-write maps do not fit into the heap store of Spark {}, which copies its whole state for each batch"
              + " instead. Missing in Spark: {}. Results and files are the same. What to do: for large state, use"
              + " RocksDB",
          org.apache.spark.package$.MODULE$.SPARK_VERSION(),
          missing);
    }
  }
}
