package io.pyspark.statestore.fs;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.log.MergedLogs;
import java.io.IOException;
import java.io.OutputStream;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * The entry that Spark makes in its commit log when all tasks of a batch have ended and the sink has its output. From
 * then on Spark counts on the batch, so the entry is not made before all that the tasks have committed is durable.
 * Nothing waits where each commit was durable before its task ended.
 */
final class BatchEnd implements AtomicFile {
  private static final Pattern NUMBER = Pattern.compile("\\d{1,18}");

  private final AtomicFile entry;
  private final Path stateDirectory;
  private final long batch;
  private final Configuration conf;
  private final long sinceNanos;
  private boolean finished;

  private BatchEnd(AtomicFile entry, Path stateDirectory, long batch, Configuration conf, long sinceNanos) {
    this.entry = entry;
    this.stateDirectory = stateDirectory;
    this.batch = batch;
    this.conf = conf;
    this.sinceNanos = sinceNanos;
  }

  /**
   * Holds an entry back.
   *
   * @param path of a new file, with its real name
   * @param made the file as Spark makes it
   * @param sinceNanos when the manager of the log was made. Each run of a query makes its own before its first task
   * @return {@code made}, where the file is no entry of a commit log
   */
  static AtomicFile of(Path path, AtomicFile made, Configuration conf, long sinceNanos) throws IOException {
    Path log = path.getParent();
    if (log == null || !log.getName().equals("commits") || !NUMBER.matcher(path.getName()).matches()) {
      return made;
    }
    Path checkpoint = path.getFileSystem(conf).makeQualified(log.getParent());
    return new BatchEnd(made, new Path(checkpoint, "state"), Long.parseLong(path.getName()), conf, sinceNanos);
  }

  @Override
  public OutputStream out() {
    return entry.out();
  }

  @Override
  public void close() throws IOException {
    if (finished) {
      return;
    }
    finished = true;
    String state = stateDirectory.toString();
    boolean isDurable = false;
    boolean isEntered = false;
    try {
      if (MergedLogs.batchEnds(state, batch)) {
        MergedLogs.awaitBatch(state, sinceNanos, batch, Options.from(conf).closedAfterMs());
      }
      isDurable = true;
      entry.close();
      isEntered = true;
    } finally {
      MergedLogs.batchEnded(state, batch, isEntered ? this::isEntered : null);
      if (!isDurable) {
        entry.cancel();
      }
    }
  }

  /** Whether a batch is in the log. */
  private boolean isEntered(long other) throws IOException {
    Path file = new Path(new Path(stateDirectory.getParent(), "commits"), Long.toString(other));
    return file.getFileSystem(conf).exists(file);
  }

  @Override
  public void cancel() {
    finished = true;
    entry.cancel();
  }
}
