/**
 * What is removed, and why that is safe. Two things go: merged files in which nothing lives (unlinked), and, where
 * files are mostly dead or many and small, the live segments in them move to a new file first (relocated).
 *
 * <p>A file is unlinked only when: nothing in it lives by entries that were read from files or reported; each tombstone
 * in it that may still be needed is durable elsewhere; nobody may append to it any more; no fork's pin names it, in a
 * listing that is younger than all of that. A segment is copied only after its relocation marker was made, and only if
 * it lives after that; the copy keeps its key, so whatever happens to its path meanwhile still wins. When anything
 * cannot be read, nothing is deleted.
 *
 * <p>May import: {@code files}, {@code index}, {@code metrics}, {@code learn}, {@code write}, {@code read}.
 *
 * <ol>
 *   <li>{@link io.pyspark.statestore.clean.Maintenance} puts the room together; {@link
 *       io.pyspark.statestore.clean.Cleaner} makes a pass
 *   <li>{@link io.pyspark.statestore.clean.UnlinkPlan} says which files may go, and which tombstones come first
 *   <li>{@link io.pyspark.statestore.clean.Garbage} plans what is worth moving, {@link
 *       io.pyspark.statestore.clean.Relocator} moves it; on an executor {@link
 *       io.pyspark.statestore.clean.ServedRelocations} asks the driver for the plan
 *   <li>{@link io.pyspark.statestore.clean.Consolidation} writes index-only files, so that few files are opened later
 *   <li>{@link io.pyspark.statestore.clean.SourcePins} lets go of what a fork needs no more of its source
 * </ol>
 */
package io.pyspark.statestore.clean;
