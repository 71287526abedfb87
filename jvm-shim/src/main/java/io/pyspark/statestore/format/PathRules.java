package io.pyspark.statestore.format;

import java.util.regex.Pattern;

/**
 * What a logical path may look like: relative, below {@code state/}, without a way out of it; and the path of another
 * checkpoint's merged file.
 */
public final class PathRules {
  private static final int MAX_LENGTH = 4096;
  private static final Pattern MERGED_FILE = Pattern.compile("[0-9]{13}-[0-9a-f]{16}-[0-9]{1,10}\\.merged");
  private static final String MERGED_DIRECTORY = "/state/_merged/";

  private PathRules() {}

  static void check(String path) throws MalformedIndexException {
    if (!isValid(path)) {
      throw new MalformedIndexException("the logical path '" + path + "' is not a relative path below state/");
    }
  }

  static void checkFileName(String name) throws MalformedIndexException {
    if (!MERGED_FILE.matcher(name).matches()) {
      throw new MalformedIndexException("its name table holds '" + name + "', which is no name of a merged file");
    }
  }

  static void checkForeignPath(String path) throws MalformedIndexException {
    if (!isForeign(path)) {
      throw new MalformedIndexException("its name table holds '" + path + "', which is no path of a merged file");
    }
  }

  /** Whether {@code path} is absolute, normalised, and that of a merged file with segments. */
  public static boolean isForeign(String path) {
    int name = path.lastIndexOf('/') + 1;
    return path.startsWith("/") && path.length() <= MAX_LENGTH && isSafe(path.substring(1))
        && path.substring(0, name).endsWith(MERGED_DIRECTORY)
        && MERGED_FILE.matcher(path.substring(name)).matches();
  }

  /** Whether {@code path} is relative and each of its parts is a plain name. */
  public static boolean isValid(String path) {
    return isSafe(path) && !path.equals("_merged") && !path.startsWith("_merged/");
  }

  private static boolean isSafe(String path) {
    if (path.isEmpty() || path.length() > MAX_LENGTH || path.indexOf('\0') >= 0 || path.indexOf('\\') >= 0) {
      return false;
    }
    for (String part : path.split("/", -1)) {
      if (part.isEmpty() || part.equals(".") || part.equals("..")) {
        return false;
      }
    }
    return true;
  }
}
