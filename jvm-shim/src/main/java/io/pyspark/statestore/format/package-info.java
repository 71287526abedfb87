/**
 * The bytes of a merged file: how they are written, read and checked. {@code docs/format.md} describes them, and
 * Python's {@code format} reads and writes the same.
 *
 * <p>It may import the errors of the root package, and Jackson; never the log or anything above, Spark or Hadoop.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>{@link MergedFileWriter} writes a {@link Header}, then groups; the last one seals the file.
 *   <li>A group is a {@link Front}, the bytes of its segments, an {@link IndexBlock} and a {@link Trailer}.
 *   <li>An {@link Entry} of the block is one fact about a path; {@link PathRules} says which paths there may be.
 *   <li>{@link MergedFileReader} takes a {@link RangeSource} and finds each {@link Group}, from the end or by fronts.
 *   <li>It believes no byte before its {@link Checksum} holds, and tells what a crash tore from what is damaged.
 * </ol>
 */
package io.pyspark.statestore.format;
