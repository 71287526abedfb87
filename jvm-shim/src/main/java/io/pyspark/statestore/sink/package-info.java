/**
 * The batches of file sinks: what Spark's tasks have written becomes few files before the sink's list names them. Files
 * that the list names already can be joined from Python.
 *
 * <p><b>What it may import:</b> {@code sink.join}, options and errors; of {@code log} only what has nothing to do with
 * state (object stores, listeners of metrics, daemon threads). {@code spark} imports it, for the metrics.
 *
 * <p><b>The way through:</b>
 *
 * <ol>
 *   <li>Spark makes a {@link CompactingCommitProtocol} for a batch. {@link StagedCommitProtocol}, above it, asks the
 *       {@link RunningSink} how the query writes, and has tasks write to a {@link Staging} directory ({@link AtWork}).
 *   <li>When all tasks are done, {@link Waiting} says which rows of earlier batches wait, and {@link Bins} which files
 *       become one.
 *   <li>{@link Placement} has {@code sink.join} make these, gives all files their final places ({@link SinkPaths},
 *       {@link SinkPlaces}), and asks the {@link Account} where each old file went.
 *   <li>Spark's own class adds the files to the list, as {@link SinkFiles} makes them: that commits the batch. Then
 *       {@link SinkMetrics} tells of it, and the staging directory goes.
 *   <li>{@link SinkRewrite} does steps 2 and 3 for Python with files that are listed, or wait, and replaces a part of
 *       the list. {@link SinkScala} refuses a Scala with which Spark would not call us.
 *   <li>Beside all that, {@link ListHolesRule} gives each query a {@link FilledSinkLog}, which adds the entries that
 *       repartitionings have left out of the list ({@link ListHoles}).
 * </ol>
 */
package io.pyspark.statestore.sink;
