package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.fs.MergedFileSystem;
import io.pyspark.statestore.heap.HeapStateStoreMap;
import io.pyspark.statestore.heap.MapFactoryHook;
import io.pyspark.statestore.heap.RowSchema;
import io.pyspark.statestore.heap.SnapshotWatch;
import io.pyspark.statestore.log.UploadWatch;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Map;

/**
 * The provider door for the heap store: stock Spark with the merged file manager, and with maps in which a new version
 * costs only what changes in it. The store keeps its plain location, by which Spark's coordinator knows it.
 */
public class MergedHDFSBackedStateStoreProvider extends HDFSBackedStateStoreProvider {
  private static final Logger LOG = LoggerFactory.getLogger(MergedHDFSBackedStateStoreProvider.class);
  private static final AtomicBoolean WARNED = new AtomicBoolean();

  /** The store's schema; null where Spark's own maps are used. */
  private RowSchema schema;
  private StateStoreConf storeConf;
  private StateStoreProviderId providerId;
  /** Watches the snapshot that maintenance is writing; null where it writes none. */
  private volatile SnapshotWatch snapshot;

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
    this.storeConf = storeConf;
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
    providerId = new StateStoreProviderId(stateStoreId, UUID.fromString(hadoopConf.get(MergedFileSystem.RUN_ID)));
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
          "Copy-on-write maps do not fit into this Spark's heap store, which copies its whole state for each batch"
              + " instead. Missing in Spark: {}. Results and files are the same",
          missing);
    }
    return missing == null;
  }

  /** Makes every map of the store. Spark's method is private in the source and public in the bytecode. */
  @Override
  public HDFSBackedStateStoreMap
      org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$createHDFSBackedStateStoreMap() {
    if (schema == null) {
      return super
          .org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$createHDFSBackedStateStoreMap();
    }
    Option<KeyValueIntegrityVerifier> verifier = KeyValueIntegrityVerifier.create(
        stateStoreId().toString(), storeConf.rowChecksumEnabled(), storeConf.rowChecksumReadVerificationRatio());
    return new HeapStateStoreMap(schema, verifier);
  }

  /** Adds the memory that all versions take together; what they share counts once. */
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

  /** Writes a snapshot in one of Spark's maintenance threads, and ends early if it becomes obsolete. */
  @Override
  public void doSnapshotMaintenance() {
    if (schema == null) {
      super.doSnapshotMaintenance();
      return;
    }
    SnapshotWatch watch = new SnapshotWatch(() -> StateStore.isLoaded(providerId));
    snapshot = watch;
    try {
      UploadWatch.during(watch, super::doSnapshotMaintenance);
    } finally {
      snapshot = null;
    }
  }

  @Override
  public void org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$commitUpdates(
      long newVersion, HDFSBackedStateStoreMap map, DataOutputStream output, boolean shouldForceSnapshot) {
    watching(watch -> watch.committing(newVersion));
    super.org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$commitUpdates(
        newVersion, map, output, shouldForceSnapshot);
    if (shouldForceSnapshot) {
      watching(watch -> watch.snapshotWritten(newVersion));
    }
  }

  @Override
  public void close() {
    watching(SnapshotWatch::storeClosed);
    super.close();
  }

  private void watching(Consumer<SnapshotWatch> news) {
    SnapshotWatch watch = snapshot;
    if (watch != null) {
      news.accept(watch);
    }
  }
}
