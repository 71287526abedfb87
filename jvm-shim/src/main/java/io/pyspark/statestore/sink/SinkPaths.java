package io.pyspark.statestore.sink;

import java.util.Arrays;
import java.util.Set;
import org.apache.hadoop.fs.Path;

/**
 * What is where below a directory. That may be the root of a file system or of a bucket, whose path is {@code /} or
 * empty, so nothing else puts paths together or takes them apart.
 *
 * <p>Only paths count: the same sink may be {@code hdfs://nn/t1} and {@code hdfs://nn:8020/t1}.
 */
final class SinkPaths {
  private static final Set<String> NO_NAMES = Set.of("", ".", "..");

  private SinkPaths() {}

  /**
   * A path below a directory.
   *
   * @param relative is never taken for a URL, whatever is in it; empty for the directory itself
   */
  static Path inside(Path directory, String relative) {
    return relative.isEmpty()
        ? directory
        : new Path(directory.toUri().getScheme(), directory.toUri().getAuthority(), prefix(directory) + relative);
  }

  /** Whether a path is below a directory, at any depth. */
  static boolean isBelow(Path directory, Path path) {
    String prefix = prefix(directory);
    return path.toUri().getPath().startsWith(prefix) && path.toUri().getPath().length() > prefix.length();
  }

  /** Whether two paths are of the same file or directory. */
  static boolean areSame(Path one, Path other) {
    return prefix(one).equals(prefix(other));
  }

  /** The path from a directory to what is below it; empty for the directory itself. */
  static String below(Path directory, Path path) {
    String prefix = prefix(directory);
    if (areSame(path, directory)) {
      return "";
    }
    if (!isBelow(directory, path)) {
      throw new IllegalArgumentException(path + " is not below " + directory);
    }
    return path.toUri().getPath().substring(prefix.length());
  }

  /**
   * Whether a text that somebody else may have written leads to something below the directory that it is for, and is
   * the only text that does. The same as {@code relative_path} in Python's {@code parsing}.
   */
  static boolean isPlain(String relative) {
    return relative.indexOf('\0') < 0 && Arrays.stream(relative.split("/", -1)).noneMatch(NO_NAMES::contains);
  }

  private static String prefix(Path directory) {
    String path = directory.toUri().getPath();
    return path.endsWith("/") ? path : path + "/";
  }
}
