/**
 * How bytes come back out of merged files, checked.
 *
 * <p>May import: {@code files}, {@code index}, {@code metrics}.
 *
 * <ol>
 *   <li>{@link io.pyspark.statestore.read.SegmentReader} reads a segment and compares its checksum; where its file is
 *       gone, it looks for the segment's copy
 *   <li>{@link io.pyspark.statestore.read.FileHandles} keeps files open, and reads small objects whole ({@code
 *       SmallFiles})
 *   <li>{@link io.pyspark.statestore.read.Prefetcher} fetches what Spark asks for next: what a {@link
 *       io.pyspark.statestore.read.SnapshotZip} names, or the changelogs that follow
 *   <li>{@link io.pyspark.statestore.read.SegmentInputStream} is what Spark reads
 *   <li>{@link io.pyspark.statestore.read.StoreAhead} is how a store is read ahead, whichever it is
 * </ol>
 */
package io.pyspark.statestore.read;
