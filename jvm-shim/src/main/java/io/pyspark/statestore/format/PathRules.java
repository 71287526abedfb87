package io.pyspark.statestore.format;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Which paths and names may stand in an index block: a logical path is relative and stays below {@code state/}, and a
 * name table holds merged files, by name or, in a reference file, by path. Everything else in a file is refused. Also
 * which names files in {@code _merged} have: all others there count as nothing.
 */
public final class PathRules {
  private static final int MAX_LENGTH = 4096;
  private static final Pattern MERGED_FILE = Pattern.compile("([0-9]{13})-([0-9a-f]{16})-[0-9]{1,10}\\.merged");
  private static final Pattern FILE =
      Pattern.compile(
          "[0-9]{13}-[0-9a-f]{16}-[0-9]{1,10}"
              + "(\\.merged|\\.index\\.merged|\\.relocating|\\.fork|\\.fork\\.away|\\.own|\\.origin"
              + "|\\.exporting|\\.exported|\\.dropping|\\.running|\\.ended)");
  private static final String MERGED_DIRECTORY = "/state/_merged/";

  private PathRules() {}

  /**
   * How the name of a file in {@code _merged} ends, which says what it is. Empty where it is none of ours: what a file
   * manager leaves there, or a copy under another name, must stop no query. Python's {@code name_ending} says the same.
   */
  public static String ending(String name) {
    Matcher parts = FILE.matcher(name);
    return parts.matches() ? parts.group(1) : "";
  }

  /** Whether {@code name} is that of a merged file with segments. */
  static boolean isMergedFileName(String name) {
    return MERGED_FILE.matcher(name).matches();
  }

  /** Whether {@code name} is what the writer of a file with segments, and with this header, has called it. */
  public static boolean isOwnName(String name, Header header) {
    Matcher parts = MERGED_FILE.matcher(name);
    return parts.matches()
        && Long.parseLong(parts.group(1)) == header.createdMs()
        && Long.parseUnsignedLong(parts.group(2), 16) == header.writer();
  }

  /** Whether {@code path} is that of a merged file with segments: absolute, normalised, in {@code state/_merged/}. */
  public static boolean isForeignPath(String path) {
    int name = path.lastIndexOf('/') + 1;
    return path.startsWith("/")
        && path.length() <= MAX_LENGTH
        && isSafe(path.substring(1))
        && path.substring(0, name).endsWith(MERGED_DIRECTORY)
        && isMergedFileName(path.substring(name));
  }

  /** Whether {@code path} is a logical path: relative, of plain names only, and not in {@code _merged}. */
  public static boolean isValidPath(String path) {
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
