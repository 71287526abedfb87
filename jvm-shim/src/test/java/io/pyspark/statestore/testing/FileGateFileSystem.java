package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;

/**
 * The local disk under {@code filegate:}. When a task of a streaming query flushes, it passes the {@link FileGate}
 * {@code flush-<batch>-<partition>} before, and {@code flushed-<batch>-<partition>} after, in the directory {@code
 * fs.filegate.directory}. A task of a file sink passes {@code staged-<partition>} before it creates a file, and {@code
 * joined-<partition>} before it creates one that is made of others. A task that is interrupted there gets the exception
 * that HDFS's client throws.
 */
public final class FileGateFileSystem extends ObservedFileSystem {
  @Override
  public String getScheme() {
    return "filegate";
  }

  @Override
  protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
    TaskContext task = TaskContext.get();
    if (task == null || !operation.equals("hflush")) {
      return super.aroundData(operation, path, body);
    }
    String name = "-" + task.getLocalProperty("streaming.sql.batchId") + "-" + task.partitionId();
    stop("flush" + name);
    long result = super.aroundData(operation, path, body);
    stop("flushed" + name);
    return result;
  }

  @Override
  protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
    TaskContext task = TaskContext.get();
    if (task != null && operation.equals("create") && path.toString().contains("/_staging/")) {
      stop((path.toString().contains("/_joined/") ? "joined-" : "staged-") + task.partitionId());
    }
    return super.around(operation, path, body);
  }

  private void stop(String place) throws IOException {
    try {
      FileGate.stop(place, getConf().get("fs.filegate.directory"));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw (IOException) new InterruptedIOException("interrupted at " + place).initCause(e);
    }
  }
}
