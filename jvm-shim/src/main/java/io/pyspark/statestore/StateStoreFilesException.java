package io.pyspark.statestore;

import java.io.IOException;
import java.util.regex.Pattern;

/**
 * The shim's exception. It has a stable id, and its message says what was wrong, where, and what to do. The Python
 * package has the same ids in {@code pyspark_statestore.errors}; a test compares the two lists.
 */
public class StateStoreFilesException extends IOException implements LoadFailure {
  /** Stable error ids. */
  public enum Id {
    PSS_UNSUPPORTED_FORMAT_VERSION,
    PSS_CORRUPT_FILE,
    PSS_CORRUPT_INDEX,
    PSS_CORRUPT_SEGMENT,
    PSS_MISSING_SEGMENT,
    PSS_FOREIGN_FILE_MISSING,
    PSS_CLAIMED,
    PSS_BAD_PATH,
    PSS_INVALID_OPTION,
    PSS_UNKNOWN_OPTION,
    PSS_UNKNOWN_SCHEME,
    PSS_NOT_A_CHECKPOINT,
    PSS_FILE_NOT_CLOSED,
    PSS_WRITE_FAILED,
    PSS_INDEX_SERVICE_FAILED,
    PSS_BATCH_NOT_DURABLE,
    PSS_STALE_SNAPSHOT,
    PSS_VERSION_MISMATCH,
    PSS_WRONG_SPARK,
    PSS_NEEDS_PATH_DOOR,
    PSS_EXPORTED,
    PSS_WRONG_DOOR,
    PSS_STAYS_STOCK,
    PSS_KEEPS_STORE,
    PSS_CANNOT_REPARTITION,
    PSS_MISSING_STATE_FILE,
    PSS_MISSING_DIRECTORIES,
    PSS_HEAP_SPILL_FAILED,
    PSS_SINK_COMPACTION_FAILED
  }

  private static final long serialVersionUID = 1L;

  /** User and password of a URL. What is before an @ without a colon may be a container. */
  private static final Pattern LOGIN = Pattern.compile("(?<=://)[^/\\s]*?:[^/\\s]*@");

  private final Id id;

  public StateStoreFilesException(Id id, String message) {
    super("[" + id + "] " + redacted(message));
    this.id = id;
  }

  public StateStoreFilesException(Id id, String message, Throwable cause) {
    super("[" + id + "] " + redacted(message), cause);
    this.id = id;
  }

  /** As the other constructors, with a message that begins with the id already. */
  public static StateStoreFilesException of(Id id, String messageWithId) {
    String prefix = "[" + id + "] ";
    return new StateStoreFilesException(
        id, messageWithId.startsWith(prefix) ? messageWithId.substring(prefix.length()) : messageWithId);
  }

  /** A text for people, without the user and password of a URL. The same as {@code redacted} of the Python package. */
  public static String redacted(String text) {
    return LOGIN.matcher(String.valueOf(text)).replaceAll("***@");
  }

  /** The stable id, which is also the first word of the message. */
  public Id id() {
    return id;
  }
}
