/**
 * The tab "State files" on the pages of an application: how each checkpoint is that its processes work on.
 *
 * <p>It may import the log and all below it, and Spark; never the providers, or another room of its floor.
 *
 * <p>The way through it:
 *
 * <ol>
 *   <li>{@link ProcessFigures} reads each {@link Figure} of the logs of its process every few seconds, and tells them.
 *   <li>{@link StateFilesTab}, in the driver, keeps what all processes tell in the {@link StateFilesHistory}.
 *   <li>{@link StateFilesPage} takes a request and asks {@link StateFilesHtml} for a page of that; no log is touched.
 *   <li>{@link StateFilesHealth} says what is wrong, and {@link StateFilesChart} draws.
 *   <li>{@link Shown} has the names of figures, their units, and text as HTML.
 * </ol>
 */
package io.pyspark.statestore.tab;
