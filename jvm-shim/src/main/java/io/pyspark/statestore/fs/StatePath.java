package io.pyspark.statestore.fs;

import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;

/**
 * A path on the real file system that belongs to state: {@code <checkpoint>/state/<operator>/<partition>}, or below it.
 *
 * @param path the whole path
 * @param stateDirectory {@code <checkpoint>/state}
 * @param relative the path below the state directory
 * @param isFile whether it is named like a file of a state store; only those become segments
 */
record StatePath(Path path, Path stateDirectory, String relative, boolean isFile) {
  private static final Pattern FILE = Pattern.compile("[^/]+\\.(?:changelog|zip|delta|snapshot|sst|log)(?:\\.crc)?");

  /**
   * Finds the state directory in a path: the last {@code state/<number>/<number>}, as a checkpoint may lie below a
   * directory that is itself called state.
   *
   * @return null for everything that no store writes: offsets, commits, {@code state/0/_metadata}, {@code
   *     state/0/0/_metadata/schema}, …
   */
  static StatePath of(Path path) {
    String[] parts = path.toUri().getPath().split("/");
    for (int i = parts.length - 3; i > 0; i--) {
      if (parts[i].equals("state") && isNumber(parts[i + 1]) && isNumber(parts[i + 2])) {
        return at(path, parts, i);
      }
    }
    return null;
  }

  private static StatePath at(Path path, String[] parts, int state) {
    StringBuilder relative = new StringBuilder(parts[state + 1]);
    for (int i = state + 2; i < parts.length; i++) {
      if (parts[i].startsWith("_")) {
        return null;
      }
      relative.append('/').append(parts[i]);
    }
    Path directory = path;
    for (int i = parts.length - 1; i > state; i--) {
      directory = directory.getParent();
    }
    boolean file = parts.length > state + 3 && FILE.matcher(parts[parts.length - 1]).matches();
    return new StatePath(path, directory, relative.toString(), file);
  }

  /** As {@link #of}, and also an operator's directory, which has partitions but no files of its own. */
  static StatePath ofOperatorToo(Path path) {
    StatePath state = of(path);
    return state == null ? ofOperator(path) : state;
  }

  private static StatePath ofOperator(Path path) {
    Path parent = path.getParent();
    return parent != null && parent.getName().equals("state") && isNumber(path.getName())
        ? new StatePath(path, parent, path.getName(), false)
        : null;
  }

  private static boolean isNumber(String text) {
    return !text.isEmpty() && text.chars().allMatch(c -> c >= '0' && c <= '9');
  }
}
