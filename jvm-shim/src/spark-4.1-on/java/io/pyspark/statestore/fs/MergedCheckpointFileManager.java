package io.pyspark.statestore.fs;

import io.pyspark.statestore.ShimInfo;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/** The class for {@code spark.sql.streaming.checkpointFileManagerClass}: {@link MergedFiles} as Spark calls it. */
public final class MergedCheckpointFileManager implements CheckpointFileManager {
  private final MergedFiles files;

  /** Spark calls this by reflection. */
  public MergedCheckpointFileManager(Path path, Configuration conf) throws IOException {
    ShimInfo.checkSpark();
    files = new MergedFiles(path, conf, (real, plain) -> new Sparks(CheckpointFileManager.create(real, plain)));
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    AtomicFile file = files.createAtomic(path, overwriteIfPossible);
    return file instanceof SparksFile sparks ? sparks.out() : new Stream(file);
  }

  @Override
  public FSDataInputStream open(Path path) {
    return files.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return files.list(path, filter);
  }

  @Override
  public void mkdirs(Path path) {
    files.mkdirs(path);
  }

  @Override
  public boolean exists(Path path) {
    return files.exists(path);
  }

  @Override
  public void delete(Path path) {
    files.delete(path);
  }

  @Override
  public boolean isLocal() {
    return files.isLocal();
  }

  @Override
  public Path createCheckpointDirectory() {
    return files.createCheckpointDirectory();
  }

  @Override
  public void close() {
    files.close();
  }

  /** Spark's view of a new file of ours. */
  private static final class Stream extends CancellableFSDataOutputStream {
    private final AtomicFile file;

    Stream(AtomicFile file) {
      super(file.out());
      this.file = file;
    }

    @Override
    public void close() throws IOException {
      file.close();
    }

    @Override
    public void cancel() {
      file.cancel();
    }
  }

  /** Our view of a new file of Spark's. */
  private record SparksFile(CancellableFSDataOutputStream out) implements AtomicFile {
    @Override
    public void close() throws IOException {
      out.close();
    }

    @Override
    public void cancel() {
      out.cancel();
    }
  }

  /** A manager of Spark's. */
  private record Sparks(CheckpointFileManager manager) implements FileManager {
    @Override
    public AtomicFile createAtomic(Path path, boolean overwriteIfPossible) {
      return new SparksFile(manager.createAtomic(path, overwriteIfPossible));
    }

    @Override
    public FSDataInputStream open(Path path) {
      return manager.open(path);
    }

    @Override
    public FileStatus[] list(Path path) {
      return manager.list(path);
    }

    @Override
    public void mkdirs(Path path) {
      manager.mkdirs(path);
    }

    @Override
    public boolean exists(Path path) {
      return manager.exists(path);
    }

    @Override
    public void delete(Path path) {
      manager.delete(path);
    }

    @Override
    public boolean isLocal() {
      return manager.isLocal();
    }

    @Override
    public Path createCheckpointDirectory() {
      return manager.createCheckpointDirectory();
    }

    @Override
    public void close() {
      manager.close();
    }
  }
}
