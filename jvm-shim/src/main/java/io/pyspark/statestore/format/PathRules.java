package io.pyspark.statestore.format;

/** What a logical path may look like: relative, below {@code state/}, without a way out of it. */
public final class PathRules {
  private PathRules() {}

  static void check(String path) throws MalformedIndexException {
    if (!isValid(path)) {
      throw new MalformedIndexException("the logical path '" + path + "' is not a relative path below state/");
    }
  }

  /** Whether {@code path} is relative and each of its parts is a plain name. */
  public static boolean isValid(String path) {
    if (path.isEmpty() || path.length() > 4096 || path.indexOf('\0') >= 0 || path.indexOf('\\') >= 0) {
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
