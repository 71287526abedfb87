package io.pyspark.statestore.fs;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * What Spark's {@code CheckpointFileManager} does. Releases keep that interface in different packages, so only the
 * classes of a minor version name it. As in Scala, methods declare no {@code IOException} and may throw one.
 */
interface FileManager {
  AtomicFile createAtomic(Path path, boolean overwriteIfPossible);

  FSDataInputStream open(Path path);

  FileStatus[] list(Path path);

  void mkdirs(Path path);

  boolean exists(Path path);

  void delete(Path path);

  boolean isLocal();

  Path createCheckpointDirectory();

  /** Does nothing where Spark's managers cannot be closed. */
  void close();

  /** Makes Spark's own manager of a location, by what a configuration says. */
  interface Maker {
    FileManager make(Path path, Configuration conf);
  }
}
