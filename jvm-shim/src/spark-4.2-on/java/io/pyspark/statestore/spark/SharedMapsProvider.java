package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.ahead.StoresOfTasks;
import io.pyspark.statestore.fs.SparkQuery;
import io.pyspark.statestore.heap.HeapSpill;
import io.pyspark.statestore.heap.HeapStateStoreMap;
import io.pyspark.statestore.heap.MapFactoryHook;
import io.pyspark.statestore.heap.RowSchema;
import io.pyspark.statestore.heap.SnapshotWatch;
import io.pyspark.statestore.write.UploadWatch;
import java.io.DataOutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * The provider door for the heap store: stock Spark with the merged file manager, and with maps in which a new version
 * costs only what changes in it. The store keeps its plain location, by which Spark's coordinator knows it.
 */
abstract class SharedMapsProvider extends HDFSBackedStateStoreProvider {
  private static final StateStoreCustomMetric SPILLED_BYTES =
      new StateStoreCustomSumMetric("fileMergingHeapSpilledBytes", "file merging: bytes of rows on the local disk");

  private static final StateStoreCustomMetric SPILL_READS =
      new StateStoreCustomSumMetric("fileMergingHeapSpillReads", "file merging: reads of rows on the local disk");

  private ProgressFigures figures;

  /** Moves rows to the local disk; null where all stay in memory. */
  private HeapSpill spill;

  private long saidReads;
  private long saidWrittenBytes;

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
    figures = new ProgressFigures(stateStoreId, conf);
    providerId = new StateStoreProviderId(stateStoreId, UUID.fromString(hadoopConf.get(SparkQuery.RUN_ID)));
    if (MapsOfSpark.areUnwanted(conf) && canChooseMaps()) {
      int prefixFields = keyStateEncoderSpec instanceof PrefixKeyScanStateEncoderSpec s ? s.numColsPrefixKey() : 0;
      schema = new RowSchema(keySchema, valueSchema, prefixFields);
      spill = spill(stateStoreId, ProviderConf.options(conf));
    } else {
      MapsOfSpark.warnIfSpillIsWanted(conf);
    }
  }

  private static HeapSpill spill(StateStoreId store, Options options) {
    if (!options.heapSpill()) {
      return null;
    }
    return HeapSpill.open(store.toString(), options.heapSpillHighWaterMark(), options.heapSpillLowWaterMark());
  }

  private static boolean canChooseMaps() {
    String missing =
        MapFactoryHook.whatIsMissing(
            HDFSBackedStateStoreProvider.class, HDFSBackedStateStoreMap.class, HeapStateStoreMap.class);
    if (missing != null) {
      MapsOfSpark.warn(missing);
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
    Option<KeyValueIntegrityVerifier> verifier =
        KeyValueIntegrityVerifier.create(
            stateStoreId().toString(), storeConf.rowChecksumEnabled(), storeConf.rowChecksumReadVerificationRatio());
    return new HeapStateStoreMap(schema, verifier, spill);
  }

  @Override
  public StateStore getStore(long version, Option<String> uniqueId, boolean forceSnapshot, boolean loadEmpty) {
    StateStore store = super.getStore(version, uniqueId, forceSnapshot, loadEmpty);
    opened(store);
    return store;
  }

  @Override
  public ReadStateStore getReadStore(long version, Option<String> uniqueId) {
    ReadStateStore store = super.getReadStore(version, uniqueId);
    opened(store);
    return store;
  }

  private void opened(ReadStateStore store) {
    if (spill != null) {
      StoresOfTasks.opened(stateStoreId(), store, spill.ahead(), figures::lookedAhead);
    }
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return ProgressFigures.addedTo(super.supportedCustomMetrics().toList())
        .$colon$colon(SPILLED_BYTES)
        .$colon$colon(SPILL_READS);
  }

  /** Adds what was done to merged files, and the memory of all versions together; what they share counts once. */
  @Override
  @SuppressWarnings("unchecked")
  public Map<String, Object> getMetricsForProvider() {
    Map<String, Object> metrics = figures.addedTo(super.getMetricsForProvider());
    if (schema == null) {
      return metrics;
    }
    List<HeapStateStoreMap> versions = new ArrayList<>();
    getLoadedMaps().values().forEach(map -> versions.add((HeapStateStoreMap) map));
    Collections.reverse(versions);
    long bytes = HeapStateStoreMap.estimatedSize(versions);
    if (spill == null) {
      return metrics.updated("memoryUsedBytes", bytes);
    }
    HeapStateStoreMap.keepOnly(spill, versions);
    long spilled = Math.min(bytes, spill.spilledBytes());
    long reads = spill.reads();
    long writtenBytes = spill.writtenBytes();
    if (writtenBytes > saidWrittenBytes || reads > saidReads) {
      figures.spilled(writtenBytes - saidWrittenBytes, reads - saidReads);
    }
    saidWrittenBytes = writtenBytes;
    java.util.Map<String, Long> more =
        java.util.Map.of(SPILLED_BYTES.name(), spilled, SPILL_READS.name(), reads - saidReads);
    saidReads = reads;
    return MoreMetrics.added(metrics.updated("memoryUsedBytes", bytes - spilled), more);
  }

  /**
   * Has Spark write a snapshot in one of its maintenance threads, and ends early if the snapshot becomes obsolete.
   *
   * @param sparks Spark's own method, which each minor version names differently
   */
  final void writingSnapshot(Runnable sparks) {
    if (schema == null) {
      sparks.run();
      return;
    }
    SnapshotWatch watch = new SnapshotWatch(() -> StateStore.isLoaded(providerId));
    snapshot = watch;
    try {
      UploadWatch.during(watch, sparks);
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
    if (spill != null) {
      spill.close();
    }
    super.close();
  }

  private void watching(Consumer<SnapshotWatch> news) {
    SnapshotWatch watch = snapshot;
    if (watch != null) {
      news.accept(watch);
    }
  }
}
