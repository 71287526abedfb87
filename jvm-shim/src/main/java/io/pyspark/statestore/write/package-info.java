/**
 * How a logical file becomes durable: group commit into files that this process has open.
 *
 * <p>May import: {@code files}, {@code index}, {@code metrics}, {@code learn}. What other rooms say of a commit comes
 * through {@code Commits.Around}.
 *
 * <ol>
 *   <li>{@link io.pyspark.statestore.write.Commits#create} gives a {@link io.pyspark.statestore.write.LogOutputStream},
 *       which collects a {@link io.pyspark.statestore.write.Payload}
 *   <li>when it is closed, {@code Commits.commit} makes a {@link io.pyspark.statestore.write.Commit} and chooses a
 *       {@link io.pyspark.statestore.write.Lane}
 *   <li>one task leads the lane: {@code CommitWindow} says how long it waits for others; it takes all that is queued
 *   <li>{@link io.pyspark.statestore.write.OpenFile} writes payloads, index block and trailer, flushes once, has the
 *       index take the entries in, and reports the group
 *   <li>with {@code groupCommit.scope=batch} {@link io.pyspark.statestore.write.BatchCommits} keeps commits until
 *       {@link io.pyspark.statestore.write.BatchDebts} in the driver calls them in
 * </ol>
 */
package io.pyspark.statestore.write;
