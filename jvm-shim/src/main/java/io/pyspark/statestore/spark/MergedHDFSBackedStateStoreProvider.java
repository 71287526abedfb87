package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.heap.HeapStateStoreMap;
import io.pyspark.statestore.heap.MapFactoryHook;
import io.pyspark.statestore.heap.RowSchema;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Map;

/**
 * The provider door for the heap store: stock Spark with a merged file manager, and with maps of which a new version
 * costs what changes in it. The store keeps its plain location, because Spark's coordinator knows it by that.
 */
public class MergedHDFSBackedStateStoreProvider extends HDFSBackedStateStoreProvider {
  private static final Logger LOG = LoggerFactory.getLogger(MergedHDFSBackedStateStoreProvider.class);
  private static final AtomicBoolean WARNED = new AtomicBoolean();

  /** Null where Spark's own maps are used. */
  private RowSchema schema;

  @Override
  public void init(
      StateStoreId stateStoreId,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keyStateEncoderSpec,
      boolean useColumnFamilies,
      StateStoreConf storeConf,
      Configuration hadoopConf,
      boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> stateSchemaProvider) {
    Configuration conf = ProviderConf.mergingPlainPaths(hadoopConf);
    super.init(
        stateStoreId,
        keySchema,
        valueSchema,
        keyStateEncoderSpec,
        useColumnFamilies,
        storeConf,
        conf,
        useMultipleValuesPerKey,
        stateSchemaProvider);
    if (copiesOnWrite(conf) && canChooseMaps()) {
      int prefixFields = keyStateEncoderSpec instanceof PrefixKeyScanStateEncoderSpec s ? s.numColsPrefixKey() : 0;
      schema = new RowSchema(keySchema, valueSchema, prefixFields);
    }
  }

  private static boolean copiesOnWrite(Configuration conf) {
    try {
      return Options.from(conf).heapCopyOnWrite();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean canChooseMaps() {
    String missing = MapFactoryHook.whatIsMissing(
        HDFSBackedStateStoreProvider.class, HDFSBackedStateStoreMap.class, HeapStateStoreMap.class);
    if (missing != null && WARNED.compareAndSet(false, true)) {
      LOG.warn(
          "This Spark's heap store cannot be given copy-on-write maps, and copies its whole state for each batch, as"
              + " ever. What was looked for in vain: {}. Results and files are the same",
          missing);
    }
    return missing == null;
  }

  /** Spark makes all its maps here; the method is private in the source, and public in the bytecode. */
  @Override
  public HDFSBackedStateStoreMap
      org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$createHDFSBackedStateStoreMap() {
    if (schema == null) {
      return super
          .org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$createHDFSBackedStateStoreMap();
    }
    StateStoreConf conf = storeConf();
    Option<KeyValueIntegrityVerifier> verifier = KeyValueIntegrityVerifier.create(
        stateStoreId().toString(), conf.rowChecksumEnabled(), conf.rowChecksumReadVerificationRatio());
    return new HeapStateStoreMap(schema, verifier);
  }

  private StateStoreConf storeConf() {
    return org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$storeConf();
  }

  /** What versions share counts once. */
  @Override
  @SuppressWarnings("unchecked")
  public Map<String, Object> getMetricsForProvider() {
    Map<String, Object> metrics = super.getMetricsForProvider();
    if (schema == null) {
      return metrics;
    }
    List<HeapStateStoreMap> versions = new ArrayList<>();
    getLoadedMaps().values().forEach(map -> versions.add((HeapStateStoreMap) map));
    Collections.reverse(versions);
    return metrics.updated("memoryUsedBytes", HeapStateStoreMap.estimatedSize(versions));
  }

  /** A snapshot of what this version was before would contradict its new delta: it is not finished. */
  @Override
  public void org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$commitUpdates(
      long newVersion, HDFSBackedStateStoreMap map, DataOutputStream output, boolean shouldForceSnapshot) {
    synchronized (this) {
      if (getLoadedMaps().get(newVersion) instanceof HeapStateStoreMap before && before != map) {
        before.supersede();
      }
    }
    super.org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$commitUpdates(
        newVersion, map, output, shouldForceSnapshot);
  }

  /** A snapshot that is being written is not finished: the partition is another executor's, or the query is over. */
  @Override
  public void close() {
    for (HDFSBackedStateStoreMap map : getLoadedMaps().values()) {
      if (map instanceof HeapStateStoreMap ours) {
        ours.supersede();
      }
    }
    super.close();
  }
}
