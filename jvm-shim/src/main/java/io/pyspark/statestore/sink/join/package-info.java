/**
 * Makes few files of many, format by format, and shows that no row was lost: in a Spark job with a task for each file
 * that is to come.
 *
 * <p><b>What it may import:</b> errors, and nothing else of ours. It is given files and a directory, and knows of no
 * list, no batch and no staging. {@code sink} imports it.
 *
 * <p><b>The way through:</b>
 *
 * <ol>
 *   <li>A {@link Compaction} is given a {@link WrittenFormat}: what a query tells of its files, or what {@link
 *       FoundFormat} finds in them. {@link FileFormats} asks Spark's classes for formats.
 *   <li>It says first why such files cannot be joined, if they cannot: of texts by their options and {@link TextForm},
 *       of all others after a {@link Probe} has written and read a few rows.
 *   <li>{@link Jobs} runs {@link JoinedFiles} for each {@link Join}, on executors. {@link PartNames} names new files.
 *   <li>There {@link TextCopy} copies lines ({@link TextFile}, {@link Lines}), and {@link RowCopy} rows, with a look at
 *       each {@link Footer}. Both read ahead ({@link FetchedFiles}), and read again what they have written.
 *   <li>A task answers with a {@link Joined}: what was in the old files and is in the new ones, which files were left,
 *       and why. {@link FileCopies} copies files as they are, in a job, too.
 * </ol>
 */
package io.pyspark.statestore.sink.join;
