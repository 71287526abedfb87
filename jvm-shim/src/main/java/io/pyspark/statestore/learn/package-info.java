/**
 * How a log learns what other processes have written: it lists the files and reads the ends of those that are new or
 * longer, or another room asks the driver.
 *
 * <p>May import: {@code files}, {@code index}, {@code metrics}.
 *
 * <ol>
 *   <li>a question comes to the log's {@link io.pyspark.statestore.learn.IndexSource} with a {@link
 *       io.pyspark.statestore.learn.FreshnessKey}; all tasks of a stage have the same one
 *   <li>{@link io.pyspark.statestore.learn.FilesSource} has the {@link io.pyspark.statestore.learn.Refresher} list and
 *       read
 *   <li>{@link io.pyspark.statestore.learn.IndexReader} reads what is new of a file, and the index takes it in
 *   <li>{@link io.pyspark.statestore.learn.RelocationMarkers} and {@link io.pyspark.statestore.learn.Pins} take note of
 *       the listing: who copies segments, and what forks need
 *   <li>{@link io.pyspark.statestore.learn.IndexTransport} is the way to the driver, where there is a service
 * </ol>
 */
package io.pyspark.statestore.learn;
