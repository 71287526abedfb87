/**
 * Look-ahead: a stateful operator asks its store for one key after the other, and its input tells all of them before.
 *
 * <p>It may import the open databases of {@code rocks}, all below them, and Spark; never the providers.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>{@link LookAheadRule} puts a {@link LookAheadExec} under each operator whose {@link StateKeys} it knows.
 *   <li>In a task {@link RowsAhead} copies a {@link RowWindow} of rows, and hands the operator the one before.
 *   <li>{@link Asking} has the operator's own store say which keys it would read for them. {@link StoresOfTasks} finds
 *       it.
 *   <li>What they need is fetched meanwhile, by {@link io.pyspark.statestore.rocks.ReadAhead}.
 *   <li>It is only ever a hint: whatever goes wrong, the rows are handed on, and the operator reads by itself.
 * </ol>
 */
package io.pyspark.statestore.ahead;
