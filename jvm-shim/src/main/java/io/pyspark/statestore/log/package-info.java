/**
 * One process's work on one checkpoint: the verbs, and the rooms behind them put together.
 *
 * <p>May import: every room below; of Spark nothing, of Hadoop the file system.
 *
 * <ol>
 *   <li>{@link io.pyspark.statestore.log.MergedLogs} opens a log once per checkpoint and process, calls its
 *       housekeeping every 100 ms, and seals its files when the process ends
 *   <li>{@link io.pyspark.statestore.log.MergedLog} has the verbs; its class comment says which room does each
 *   <li>{@code fs} above calls them for Spark, by Spark's own interface for files
 * </ol>
 */
package io.pyspark.statestore.log;
