/**
 * How Spark's file operations reach the merged log: as a checkpoint file manager, and as a file system of Hadoop's.
 *
 * <p>It may import the log and all below it, Spark and Hadoop; never the providers, or another room of its floor.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>Spark makes a {@link MergedCheckpointFileManager}; {@link MergedFiles} answers. RocksDB copies SSTs through
 *       {@link MergedFileSystem}, whose names {@link Schemes} tells from real ones.
 *   <li>{@link StatePath} says what is state. All else goes on to Spark's own {@link FileManager}, which makes an
 *       {@link AtomicFile}.
 *   <li>A {@link StateView} asks the log about one path of state, after {@link Freshness} has said how new it must be.
 *   <li>The log learns from {@link ProcessIdentity} and {@link SparkQuery} who works on it. On an executor it asks the
 *       driver through {@link SparkTransport}, where {@link IndexEndpoint} answers.
 *   <li>{@link DoorCheck} refuses the wrong door, {@link BatchEnd} holds back the entry that ends a batch, and {@link
 *       SparksProviders} shows an offset log to Spark's repartitioning.
 *   <li>{@link SparksLog} makes fewer calls for Spark's own logs on HDFS and S3A.
 *   <li>{@link RunEnds} hears when the {@link ActiveRuns} of this driver begin and end, and {@link RunFiles} says so in
 *       their checkpoints.
 * </ol>
 */
package io.pyspark.statestore.fs;
