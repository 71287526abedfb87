package io.pyspark.statestore.tables;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The register of all local SSTs of this process of which parts are missing, or may go again.
 *
 * <p>It knows a file by its identity on the disk, not by its name, so each hard link of it is found, too. A file stays
 * here, and is held open so that its identity cannot become another file's, until it is whole or its store is closed.
 * Where somebody has another name of it by then ({@link Named}), it stays until that is gone, and can never be read as
 * a whole file.
 */
public final class PartialFiles {
  /** By identity on the disk. */
  private static final Map<Object, PartialFile> ALL = new ConcurrentHashMap<>();

  /** Those that are read from beginning to end under another name than RocksDB's, by identity, and by how many. */
  private static final Map<Object, Integer> PINNED = new ConcurrentHashMap<>();

  /** Those that have names which do not go with their store, by identity, and by how many. */
  private static final Map<Object, Integer> NAMED = new ConcurrentHashMap<>();

  private PartialFiles() {}

  static void add(PartialFile file) {
    ALL.put(file.key(), file);
  }

  /** A file is whole, or its store is closed. */
  static void remove(PartialFile file) {
    ALL.computeIfPresent(file.key(), (any, found) -> found == file && !file.staysKnown() ? null : found);
  }

  /** The file of this name, if parts of it are missing; else null. */
  static PartialFile at(Path path) throws IOException {
    return ALL.isEmpty() ? null : ALL.get(keyOf(path));
  }

  /** All in a directory that have holes, by name, whatever their store knows of them. */
  static Map<String, PartialFile> in(Path directory) throws IOException {
    Map<String, PartialFile> found = new HashMap<>();
    try (DirectoryStream<Path> all = Files.newDirectoryStream(directory)) {
      for (Path path : all) {
        PartialFile partial = at(path);
        if (partial != null) {
          found.put(path.getFileName().toString(), partial);
        }
      }
    }
    return found;
  }

  /** Whether parts of a file may be missing. */
  static boolean isPartial(Object key) {
    return ALL.containsKey(key);
  }

  /** What tells the files of which parts are missing from all others. */
  static Set<Object> allKeys() {
    return ALL.keySet();
  }

  /** Bytes that are missing in this process. */
  public static long missingInAll() {
    return ALL.values().stream().mapToLong(PartialFile::missing).sum();
  }

  // ---- identities

  /** What tells a file from all others, whatever its name; null where there is nothing. */
  static Object keyOf(Path path) throws IOException {
    return Files.readAttributes(path, BasicFileAttributes.class).fileKey();
  }

  /** The same; null also where there is no file. */
  static Object keyIfThere(Path path) throws IOException {
    try {
      return keyOf(path);
    } catch (NoSuchFileException e) {
      return null;
    }
  }

  // ---- who else has a file

  /** Until it is closed all of a file is here. */
  public static final class Pin implements AutoCloseable {
    private Object key;

    private Pin(Object key) {
      this.key = key;
      if (key != null) {
        PINNED.merge(key, 1, Integer::sum);
      }
    }

    @Override
    public synchronized void close() {
      if (key != null) {
        PINNED.computeIfPresent(key, (any, count) -> count == 1 ? null : count - 1);
        key = null;
      }
    }
  }

  /**
   * Makes a local file whole that is about to be read by somebody else than RocksDB, who would take a hole for data.
   * Nothing of it goes until that is over, also where parts of it may go only from some time in between: the file may
   * become durable under another name.
   */
  public static Pin pin(Path path) throws IOException {
    Pin pin = pinned(keyOf(path));
    boolean done = false;
    try {
      PartialFile partial = at(path);
      if (partial != null) {
        partial.awaitWhole();
      }
      done = true;
      return pin;
    } finally {
      if (!done) {
        pin.close();
      }
    }
  }

  /** From now on nothing goes of a file, whatever is missing of it already. */
  static Pin pinned(Object key) {
    return new Pin(key);
  }

  static boolean isPinned(Object key) {
    return PINNED.containsKey(key);
  }

  /** As long as this is open, a file has a name that does not go with its store. */
  static final class Named implements AutoCloseable {
    private Object key;

    Named(Object key) {
      this.key = key;
      NAMED.merge(key, 1, Integer::sum);
    }

    @Override
    public synchronized void close() {
      if (key != null) {
        NAMED.computeIfPresent(key, (any, count) -> count == 1 ? null : count - 1);
        ALL.computeIfPresent(key, (any, file) -> file.isClosed() && !isNamed(any) ? null : file);
        key = null;
      }
    }
  }

  /** Whether a file has a name that does not go with its store. */
  static boolean isNamed(Object key) {
    return NAMED.containsKey(key);
  }
}
