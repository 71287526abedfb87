/**
 * What a log has done, counted: for the tab, for metrics, and for the progress of a query.
 *
 * <p>May import: {@code index}.
 *
 * <ol>
 *   <li>every room counts in the {@link io.pyspark.statestore.metrics.LogMetrics} of its log, as it happens
 *   <li>{@link io.pyspark.statestore.metrics.MetricsListener} tells the one listener of this process
 *   <li>{@link io.pyspark.statestore.metrics.StoreFigures} are those of one store, until somebody takes them
 * </ol>
 */
package io.pyspark.statestore.metrics;
