/**
 * RocksDB's SSTs on their way out and in, and what a load reads.
 *
 * <p>May import: {@code files}, {@code index}, {@code metrics}, {@code learn}, {@code write}, {@code read}.
 *
 * <ol>
 *   <li>out: {@link io.pyspark.statestore.tables.Snapshots#stage} keeps what Spark uploads ({@code StagedFiles}); the
 *       zip that names it is checked by the {@code SnapshotGuard}, and takes it along
 *   <li>early: RocksDB tells {@link io.pyspark.statestore.tables.EarlyFiles} what it makes, and {@code EarlyUploads}
 *       writes it before any zip names it
 *   <li>in: {@link io.pyspark.statestore.tables.Loads} opens segments, and copies SSTs out of the {@code HostCache} or
 *       the merged files
 *   <li>lazily: {@code LazyCopies} copies a file's end ({@code TableEnd}) into a {@link
 *       io.pyspark.statestore.tables.PartialFile}, and the {@code Hydrator} fetches the rest
 *   <li>{@link io.pyspark.statestore.tables.OpenStores} says which stores are loaded in this process
 * </ol>
 */
package io.pyspark.statestore.tables;
