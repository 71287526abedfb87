package io.pyspark.statestore.testing;

import io.pyspark.statestore.fs.MergedCheckpointFileManager;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The merged file manager, which passes a {@link Gate} before it creates, opens, lists, deletes or looks for a file.
 */
public final class GatedFileManager implements CheckpointFileManager {
  private final MergedCheckpointFileManager merged;

  /** Spark calls this by reflection. */
  public GatedFileManager(Path path, Configuration conf) throws IOException {
    merged = new MergedCheckpointFileManager(path, conf);
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    Gate.pass("before createAtomic", path.toString());
    return merged.createAtomic(path, overwriteIfPossible);
  }

  @Override
  public FSDataInputStream open(Path path) {
    Gate.pass("before open", path.toString());
    return merged.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    Gate.pass("before list", path.toString());
    return merged.list(path, filter);
  }

  @Override
  public void mkdirs(Path path) {
    merged.mkdirs(path);
  }

  @Override
  public boolean exists(Path path) {
    Gate.pass("before exists", path.toString());
    return merged.exists(path);
  }

  @Override
  public void delete(Path path) {
    Gate.pass("before delete", path.toString());
    merged.delete(path);
  }

  @Override
  public boolean isLocal() {
    return merged.isLocal();
  }

  @Override
  public Path createCheckpointDirectory() {
    return merged.createCheckpointDirectory();
  }

  @Override
  public void close() {
    merged.close();
  }
}
