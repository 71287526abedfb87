package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.write.LogOutputStream;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.TaskEnd;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Map;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** A log in a process that cannot start another thread. */
public final class ThreadlessLog {
  private final MergedLog log;

  /**
   * @param state directory on {@code fs}
   */
  public ThreadlessLog(FileSystem fs, Path state, Configuration conf) throws IOException {
    ThreadPoolExecutor threads =
        new ThreadPoolExecutor(
            0,
            100,
            1,
            TimeUnit.SECONDS,
            new SynchronousQueue<>(),
            task -> {
              throw new OutOfMemoryError("unable to create native thread");
            });
    java.nio.file.Path local = Files.createTempDirectory("threadless");
    log =
        new MergedLog(
            fs,
            state,
            Options.from(conf),
            new ProcessFacts(Map::of, () -> local, () -> 1, 60_000, TaskEnd.NONE),
            threads,
            null,
            "",
            "");
  }

  /** Commits a logical file. */
  public void write(String path, byte[] bytes) throws IOException {
    try (LogOutputStream out = log.create(path)) {
      out.write(bytes, 0, bytes.length);
    }
  }

  /** Returns how many commits wait for a lane. */
  public int waiting() {
    return log.commits().waiting();
  }

  public void seal() {
    log.seal();
  }
}
