/**
 * What users' settings and Python name by its class: the providers, the plugin and the extension. Their names stay.
 *
 * <p>It may import everything below it, and Spark. Nothing imports it.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>A {@code MergedRocksDBStateStoreProvider} or {@code MergedHDFSBackedStateStoreProvider} is Spark's own, with
 *       {@link ProviderConf}; {@code MergedRocksDB} and {@code SharedMapsProvider} change what these keep.
 *   <li>{@link ProgressFigures} adds to their metrics, for which a RocksDB store is wrapped in a {@link MeteredStore}.
 *   <li>{@link FileMergingPlugin} starts {@link FileMergingMetrics} and the tab in each process.
 *   <li>{@link MergedStateExtensions} puts {@link PlanChecks} into a session; {@link SessionAttach} does that, and the
 *       rest, in one that runs already. Both add what looks at the plan of each batch.
 *   <li>{@link EndedQueries} hears when queries end, for commands that need a stopped one.
 * </ol>
 */
package io.pyspark.statestore.spark;
