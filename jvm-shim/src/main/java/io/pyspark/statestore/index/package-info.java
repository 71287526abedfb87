/**
 * What one process knows of a checkpoint's logical files, and the rules that decide by it: which entry wins, what a
 * tombstone kills, which file counts as closed. In memory only; nothing here calls a file system.
 *
 * <p>May import: {@code format}, and the clocks of {@code files}.
 *
 * <ol>
 *   <li>{@link io.pyspark.statestore.index.Index#apply} takes in the entries of a {@link
 *       io.pyspark.statestore.index.MergedFile}
 *   <li>a path's directory has a {@code StoreEntries}: records in an {@code EntryTable}, of which a {@link
 *       io.pyspark.statestore.index.Segment} or a {@link io.pyspark.statestore.index.Tombstone} is made when it is
 *       asked for
 *   <li>{@link io.pyspark.statestore.index.Segment#beats} and {@link io.pyspark.statestore.index.Tombstone#kills}
 *       decide what lives; the counts of the file follow
 *   <li>{@link io.pyspark.statestore.index.Rules} has the rules that need a clock or an option
 *   <li>{@link io.pyspark.statestore.index.TombstoneUse} says what a file's tombstones are needed for
 * </ol>
 */
package io.pyspark.statestore.index;
