/**
 * The directory of merged files, on any file system: listing, opening, creating and deleting, and the clocks that files
 * are compared with. Nothing here knows what is in a file.
 *
 * <p>May import: the floor (options, errors) and {@code format}.
 *
 * <ol>
 *   <li>{@link io.pyspark.statestore.files.Storage} has every call of the file system, and the names' endings
 *   <li>{@link io.pyspark.statestore.files.WriterIdentity} names this process's files and makes their headers
 *   <li>{@link io.pyspark.statestore.files.Leases} closes files on HDFS whose writer is dead; {@link
 *       io.pyspark.statestore.files.BulkDeletion} deletes many objects with one request
 *   <li>{@link io.pyspark.statestore.files.Clocks} says what time it is, by clocks that may be wrong
 *   <li>{@link io.pyspark.statestore.files.Parallel} and {@link io.pyspark.statestore.files.Threads} share out work
 * </ol>
 */
package io.pyspark.statestore.files;
