package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.fs.MergedFileSystem;
import io.pyspark.statestore.metrics.StoreFigures;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiFunction;
import java.util.function.ToLongFunction;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomTimingMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import scala.collection.immutable.List;
import scala.util.Properties;

/**
 * What the progress of a query says of merged files: metrics that a store of the provider door has beside Spark's own.
 * Each batch says what has been done for the store since the batch before. Spark adds up the stores of an operator.
 */
final class ProgressFigures {
  /** Sizes are sums, too: from 4.3 on a metric of Spark's for sizes has one more property. */
  private enum Metric {
    CREATED_FILES("CreatedFiles", "merged files created", StateStoreCustomSumMetric::new, StoreFigures::createdFiles),
    SEGMENTS("WrittenSegments", "logical files written", StateStoreCustomSumMetric::new, StoreFigures::segments),
    BYTES("WrittenBytes", "bytes written", StateStoreCustomSumMetric::new, StoreFigures::writtenBytes),
    WAIT("CommitWaitMs", "wait until commits were durable", StateStoreCustomTimingMetric::new, StoreFigures::waitMs),
    FETCHED_BYTES(
        "FetchedBytes",
        "bytes of SSTs read when the store was loaded",
        StateStoreCustomSumMetric::new,
        StoreFigures::fetchedBytes),
    CACHED_BYTES(
        "CachedBytes",
        "bytes of SSTs that the host had when the store was loaded",
        StateStoreCustomSumMetric::new,
        StoreFigures::cachedBytes),
    WINDOWS(
        "LookAheadWindows",
        "windows of rows whose state was fetched ahead",
        StateStoreCustomSumMetric::new,
        figures -> figures.lookAhead().windows()),
    KEYS(
        "LookAheadKeys",
        "keys that were asked for ahead",
        StateStoreCustomSumMetric::new,
        figures -> figures.lookAhead().keys()),
    PRESENT_KEYS(
        "LookAheadPresentKeys",
        "those of them of which nothing was missing",
        StateStoreCustomSumMetric::new,
        figures -> figures.lookAhead().present()),
    BLOCKS(
        "LookAheadFetchedBlocks",
        "blocks that were fetched ahead, each a wait that was saved",
        StateStoreCustomSumMetric::new,
        figures -> figures.lookAhead().blocks());

    private final StateStoreCustomMetric metric;
    private final ToLongFunction<StoreFigures> value;

    Metric(
        String name,
        String description,
        BiFunction<String, String, StateStoreCustomMetric> kind,
        ToLongFunction<StoreFigures> value) {
      this.metric = kind.apply("fileMerging" + name, "file merging: " + description);
      this.value = value;
    }
  }

  /** Else Spark would not ask our class which metrics it supports, and fail a query for one that it does not know. */
  private static final boolean SUPPORTED = ShimInfo.knowsSequencesOf(Properties.versionNumberString());

  private final Path store;

  private final AtomicReference<StoreFigures> ahead = new AtomicReference<>(StoreFigures.NONE);

  /** Parts of a millisecond. */
  private StoreFigures unsaid = StoreFigures.NONE;

  /** Of a store that is opened now: what was done for it before does not count. */
  ProgressFigures(StateStoreId id, Configuration conf) {
    store = ProviderConf.mergedRoot(id.storeCheckpointLocation().toString(), conf);
    MergedFileSystem.takeFiguresOf(store);
  }

  /** Adds these metrics to those that a store of Spark's has. */
  static List<StateStoreCustomMetric> addedTo(List<StateStoreCustomMetric> sparks) {
    List<StateStoreCustomMetric> all = sparks;
    for (Metric each : Metric.values()) {
      all = all.$colon$colon(each.metric);
    }
    return all;
  }

  /** A store in whose metrics there are these, too. */
  StateStore metered(StateStore store) {
    return MeteredStore.of(
        store, metrics -> MetricsCopy.with(MoreMetrics.added(metrics.customMetrics(), take()), metrics));
  }

  /** Adds these metrics to those of a provider that names them; Spark takes only the names of supported ones. */
  scala.collection.immutable.Map<String, Object> addedTo(scala.collection.immutable.Map<String, Object> metrics) {
    Map<String, Long> named = new LinkedHashMap<>();
    take().forEach((metric, value) -> named.put(metric.name(), value));
    return MoreMetrics.added(metrics, named);
  }

  /** Something was fetched for the store before it was read. From any thread. */
  void lookedAhead(StoreFigures.LookAhead done) {
    ahead.accumulateAndGet(StoreFigures.lookedAhead(done), StoreFigures::plus);
    MergedFileSystem.lookedAhead(store, done);
  }

  /** Rows of the store were moved to the local disk, and read there. */
  void spilled(long writtenBytes, long reads) {
    MergedFileSystem.spilled(store, writtenBytes, reads);
  }

  /** What has been done for the store since this was last called; nothing where Spark does not take these metrics. */
  private Map<StateStoreCustomMetric, Long> take() {
    if (!SUPPORTED) {
      return Map.of();
    }
    StoreFigures figures = unsaid.plus(MergedFileSystem.takeFiguresOf(store)).plus(ahead.getAndSet(StoreFigures.NONE));
    unsaid = figures.belowMs();
    Map<StateStoreCustomMetric, Long> taken = new LinkedHashMap<>();
    for (Metric each : Metric.values()) {
      taken.put(each.metric, each.value.applyAsLong(figures));
    }
    return taken;
  }
}
