/**
 * Stores move to executors that have less to do: {@code rebalance=auto}.
 *
 * <p>It may import the root package and {@code fs}; never the providers. It touches no file: Spark's scheduler is told
 * where a partition would better run, and its store is loaded there as after any other move.
 *
 * <ol>
 *   <li>{@link io.pyspark.statestore.balance.RebalanceRule} sees the plan of each batch, in the driver, when no task of
 *       the query runs
 *   <li>{@link io.pyspark.statestore.balance.StatefulStages} finds in it the operators whose stores belong together
 *   <li>{@link io.pyspark.statestore.balance.Rebalancer} knows what each partition weighs, and where it is, by {@link
 *       io.pyspark.statestore.balance.Places}
 *   <li>{@link io.pyspark.statestore.balance.Balance} says which partitions are to move where
 *   <li>{@link io.pyspark.statestore.balance.TaskLoads} hears how long their tasks take
 * </ol>
 */
package io.pyspark.statestore.balance;
