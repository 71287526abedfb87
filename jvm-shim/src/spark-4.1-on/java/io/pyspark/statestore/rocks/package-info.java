/**
 * Open databases of RocksDB: of which some files have holes still, or which are read ahead; and what RocksDB says of
 * the files that it makes.
 *
 * <p>It may import the log and all below it, and RocksDB; never Spark, the providers, or another room of its floor.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>A {@link LazyRocksDB} stands in for a database until all of its files are whole.
 *   <li>A row is read through {@link Holes}: what RocksDB could not read is fetched, and the read is made again.
 *   <li>A scan is a {@link LazyIterator}, which makes a move again from the key on which it stood.
 *   <li>Compaction is off until all files are whole; a flush and a commit fail where a file is lost.
 *   <li>An {@link AskedRocksDB} says which keys somebody would read, and {@link ReadAhead} reads them before: what is
 *       missing of files with holes, and what comes from a slow disk ({@link DiskReads}).
 *   <li>{@link TableFiles} is apart from that: it tells the early uploads which SSTs RocksDB has made and deleted.
 * </ol>
 */
package io.pyspark.statestore.rocks;
