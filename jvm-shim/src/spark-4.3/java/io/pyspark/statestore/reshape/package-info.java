/**
 * The state of a stopped query, written anew: in another number of partitions, or for another kind of store.
 *
 * <p>It may import the root package, Spark 4.3 and RocksDB; it needs no log, because Spark reads and writes the files.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>Python calls {@link StateRewrite}: it asks what Spark can rewrite, enters a batch, has it written, commits it.
 *   <li>Of each store {@link OldStore} is where rows come from, and {@link StoreRewrite} what is to become of them.
 *   <li>{@link Tasks} runs a {@link StateWriting} for some new partitions, which then accounts for every row.
 *   <li>Rows go from {@link SortedRows} to {@link SortedFiles}, or else by {@link MovedRows}, perhaps to a {@link
 *       HeapSnapshot}.
 *   <li>{@link Places} says where a row belongs; {@link Internals} calls what Spark keeps to itself.
 * </ol>
 */
package io.pyspark.statestore.reshape;
