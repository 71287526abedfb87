package io.pyspark.statestore.format;

import java.util.regex.Pattern;

/** What a logical path may look like: relative, below {@code state/}, without a way out of it. */
public final class PathRules {
  private static final Pattern MERGED_FILE = Pattern.compile("[0-9]{13}-[0-9a-f]{16}-[0-9]{1,10}\\.merged");

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

  /** Whether {@code path} is relative and each of its parts is a plain name. */
  public static boolean isValid(String path) {
    if (path.isEmpty() || path.length() > 4096 || path.indexOf('\0') >= 0 || path.indexOf('\\') >= 0) {
      return false;
    }
    if (path.equals("_merged") || path.startsWith("_merged/")) {
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
