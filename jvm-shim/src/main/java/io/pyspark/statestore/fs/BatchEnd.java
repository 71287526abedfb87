package io.pyspark.statestore.fs;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.log.MergedLogs;
import java.io.IOException;
import java.io.OutputStream;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * The entry that Spark makes in its commit log when all tasks of a batch have ended and the sink has its output. From
 * then on Spark counts on the batch, so the entry is not made before all that the tasks have committed is durable.
 * Nothing waits where each commit was durable before its task ended.
 */
final class BatchEnd implements AtomicFile {
  /** The name of Spark's thread that runs a query. */
  private static final Pattern RUN = Pattern.compile("stream execution thread for .*runId = ([0-9a-f-]{36})\\]");
  private static final Pattern NUMBER = Pattern.compile("\\d{1,18}");

  private final AtomicFile entry;
  private final Path stateDirectory;
  private final long batch;
  private final Configuration conf;
  private boolean finished;

  private BatchEnd(AtomicFile entry, Path stateDirectory, long batch, Configuration conf) {
    this.entry = entry;
    this.stateDirectory = stateDirectory;
    this.batch = batch;
    this.conf = conf;
  }

  /**
   * Holds an entry back.
   *
   * @param path of a new file, with its real name
   * @param made the file as Spark makes it
   * @return {@code made}, where the file is no entry of a commit log
   */
  static AtomicFile of(Path path, AtomicFile made, Configuration conf)
      throws IOException {
    Path log = path.getParent();
    if (log == null || !log.getName().equals("commits") || !NUMBER.matcher(path.getName()).matches()) {
      return made;
    }
    Path checkpoint = path.getFileSystem(conf).makeQualified(log.getParent());
    return new BatchEnd(made, new Path(checkpoint, "state"), Long.parseLong(path.getName()), conf);
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
    boolean isDurable = false;
    try {
      if (MergedLogs.awaitsBatch(stateDirectory.toString())) {
        Matcher run = RUN.matcher(Thread.currentThread().getName());
        String runId = run.find() ? run.group(1) : null;
        MergedLogs.awaitBatch(stateDirectory.toString(), runId, batch, Options.from(conf).closedAfterMs());
      }
      isDurable = true;
    } finally {
      if (!isDurable) {
        entry.cancel();
      }
    }
    entry.close();
  }

  @Override
  public void cancel() {
    finished = true;
    entry.cancel();
  }
}
