/**
 * Maps for Spark's heap store in which versions share all that did not change between them.
 *
 * <p>It may import the log and all below it, and Spark; never the providers, or another room of its floor.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>{@link MapFactoryHook} says whether this Spark's heap store takes our maps.
 *   <li>A {@code HeapStateStoreMap} is the rows of one version, as Spark reads and writes them.
 *   <li>It keeps them in a {@link RowTrie} of {@link Node}s: a new version copies the nodes in which something changes.
 *   <li>A {@link Bucket} is a few rows in one array, and {@link RowSchema} their hashes and columns.
 *   <li>Where memory is short, {@link HeapSpillMonitor} has the {@link HeapSpill} of each store put buckets of its
 *       {@link HeapVersions} into {@link SpillFiles}, and a {@link SpilledBucket} in their place.
 *   <li>A {@link BucketIterator} visits them for scans and snapshots, and {@link SnapshotWatch} ends obsolete ones.
 * </ol>
 */
package io.pyspark.statestore.heap;
