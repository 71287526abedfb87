package io.pyspark.statestore.fs;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;

/** Turns merged names such as {@code merged+hdfs://nn/q1} into real ones such as {@code hdfs://nn/q1}, and back. */
public final class Schemes {
  public static final String PREFIX = "merged+";

  private Schemes() {}

  public static boolean isMerged(Path path) {
    String scheme = path.toUri().getScheme();
    return scheme != null && scheme.startsWith(PREFIX);
  }

  /** The path on the file system below. It is made from text: Path would take a URI's {@code %20} as it is. */
  public static Path toReal(Path path) {
    return isMerged(path) ? new Path(path.toString().substring(PREFIX.length())) : path;
  }

  /** The merged name of a path; one without a scheme stays as it is. */
  public static Path toMerged(Path path) {
    return path.toUri().getScheme() == null || isMerged(path) ? path : new Path(PREFIX + path);
  }

  /** The file system below the merged one. */
  static FileSystem realFileSystem(URI merged, Configuration conf) throws IOException {
    String real = merged.toString().substring(PREFIX.length());
    try {
      return FileSystem.get(URI.create(real), conf);
    } catch (UnsupportedFileSystemException e) {
      throw new StateStoreFilesException(
          Id.PSS_UNKNOWN_SCHEME,
          merged
              + " is a merged location over '"
              + URI.create(real).getScheme()
              + "', for which this session has no file system. Check the scheme, or add the jar and the fs."
              + URI.create(real).getScheme()
              + ".impl setting of that file system.",
          e);
    }
  }
}
