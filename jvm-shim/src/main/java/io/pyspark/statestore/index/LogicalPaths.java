package io.pyspark.statestore.index;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.PathRules;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What the path of a logical file, relative to {@code state/}, says: {@code <operator>/<partition>[/<store>]/<file>},
 * where the immutable files of a RocksDB snapshot are in {@code SSTs} and {@code logs} below the store's directory.
 */
public final class LogicalPaths {
  private static final String ZIP = ".zip";
  private static final String CHECKSUM = ".crc";
  private static final Pattern SNAPSHOT = Pattern.compile("(\\d{1,18})(?:_[^./]*)?\\.zip");

  /** What a batch has changed, with its version. */
  private static final Pattern CHANGE = Pattern.compile(".*/(\\d{1,18})(?:_[^/]*)?\\.(?:changelog|delta)(?:\\.crc)?");

  private LogicalPaths() {}

  /** Refuses what is no path of a logical file. */
  public static void check(String path, String checkpoint) throws StateStoreFilesException {
    if (!PathRules.isValidPath(path)) {
      throw new StateStoreFilesException(
          Id.PSS_BAD_PATH, "'" + path + "' is no path below state/ of checkpoint " + checkpoint + ".");
    }
  }

  /** {@code <operator>/<partition>} of a path. */
  public static String partition(String path) {
    int end = path.indexOf('/', path.indexOf('/') + 1);
    return end < 0 ? path : path.substring(0, end);
  }

  /** The directory in which a file is: of a changelog, a delta or a zip, that is its store's. */
  public static String directory(String path) {
    return path.substring(0, Math.max(0, path.lastIndexOf('/')));
  }

  /** The store's directory for an immutable file of a RocksDB snapshot, or null for any other path. */
  public static String storeOfImmutable(String path) {
    int slash = path.lastIndexOf('/');
    String parent = slash < 0 ? "" : path.substring(0, slash);
    int up = parent.lastIndexOf('/');
    String folder = parent.substring(up + 1);
    boolean immutable =
        folder.equals("SSTs") && path.endsWith(".sst") || folder.equals("logs") && path.endsWith(".log");
    return immutable && up > 0 ? parent.substring(0, up) : null;
  }

  /** The name that RocksDB has given an SST, which Spark has made another one of for the checkpoint. */
  public static String localName(String path) {
    String name = path.substring(path.lastIndexOf('/') + 1);
    int dash = name.indexOf('-');
    return dash < 0 ? name : name.substring(0, dash) + ".sst";
  }

  /** The directory of the store that a file belongs to. */
  public static String store(String path) {
    String immutable = storeOfImmutable(path);
    return immutable != null ? immutable : directory(path);
  }

  /** Whether it is the zip of a RocksDB snapshot. */
  public static boolean isZip(String path) {
    return path.endsWith(ZIP);
  }

  /**
   * The changelog of the version of which a zip, or the checksum file of one, is the snapshot; null for other paths.
   */
  public static String changelogOfZip(String path) {
    String zip = path.endsWith(CHECKSUM) ? pairOf(path) : path;
    return isZip(zip) ? zip.substring(0, zip.length() - ZIP.length()) + ".changelog" : null;
  }

  /** The version of which a zip is the snapshot, or -1 where its name says none. */
  public static long versionOfZip(String path) {
    Matcher name = SNAPSHOT.matcher(path.substring(path.lastIndexOf('/') + 1));
    return name.matches() ? Long.parseLong(name.group(1)) : -1;
  }

  /** The batch that writes a changelog or a delta: one loads the version of its number, and commits the next. */
  public static long batchOfChange(String path) {
    Matcher version = CHANGE.matcher(path);
    return version.matches() ? Long.parseLong(version.group(1)) - 1 : -1;
  }

  /** Whether a file belongs to a snapshot, and is no change of one batch. */
  public static boolean isOfSnapshot(String path) {
    int type = Entry.typeOf(path.endsWith(CHECKSUM) ? path.substring(0, path.length() - CHECKSUM.length()) : path);
    return type == Entry.TYPE_SST || type == Entry.TYPE_SNAPSHOT || type == Entry.TYPE_LOG;
  }

  /** A file's checksum file, or the file that a checksum file is for. */
  public static String pairOf(String path) {
    return path.endsWith(CHECKSUM) ? path.substring(0, path.length() - CHECKSUM.length()) : path + CHECKSUM;
  }
}
