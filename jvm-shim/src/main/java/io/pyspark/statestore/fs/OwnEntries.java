package io.pyspark.statestore.fs;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

/**
 * The entries that one run of a query has added to a log, and what is in the newest of them. An entry never changes
 * once it is there, so its writer need not read it.
 */
final class OwnEntries {
  /** How the name of an entry ends that repeats all before it. */
  static final String COMPACT = ".compact";

  /** Spark repeats the last ten entries of some logs, or as many as it is told to. */
  private static final int NAMES = 200;

  private static final int CONTENT_BYTES = 256 << 10;

  private final int contentsCount;
  private final Set<String> names = new LinkedHashSet<>();
  private final Map<String, byte[]> contents = new LinkedHashMap<>();
  private int bytesCount;
  private long newest = -1;

  /**
   * @param contentsCount of so many entries what is in them is known, if they are small
   */
  OwnEntries(int contentsCount) {
    this.contentsCount = contentsCount;
  }

  /** The longest entry that is kept. */
  static int longest() {
    return CONTENT_BYTES / 4;
  }

  /**
   * An entry was added.
   *
   * @param content null where it is not known any more
   */
  synchronized void added(String name, long number, byte[] content) {
    forget(name);
    newest = Math.max(newest, number);
    names.add(name);
    if (names.size() > NAMES) {
      Iterator<String> oldest = names.iterator();
      oldest.next();
      oldest.remove();
    }
    if (content != null && contentsCount > 0) {
      contents.put(name, content);
      bytesCount += content.length;
      limit();
    }
  }

  private void limit() {
    Iterator<byte[]> oldest = contents.values().iterator();
    while (contents.size() > contentsCount || bytesCount > CONTENT_BYTES) {
      bytesCount -= oldest.next().length;
      oldest.remove();
    }
  }

  /** The newest; -1 before the first. */
  synchronized long newest() {
    return newest;
  }

  /** Whether an entry is of this run, and still there. */
  synchronized boolean has(String name) {
    return names.contains(name);
  }

  /** What is in an entry of this run; null where that is not known. */
  synchronized byte[] content(String name) {
    return contents.get(name);
  }

  /**
   * Of the known entries that the next one with all before it is made of, the first; null where it has to be read, so
   * that nobody need ask for it.
   */
  synchronized String firstRepeated() {
    String first = null;
    for (String name : names) {
      first = first == null || name.endsWith(COMPACT) ? name : first;
    }
    return contents.containsKey(first) ? first : null;
  }

  /** All entries may be gone. The number of the newest one stays: no older one is added. */
  synchronized void forgetAll() {
    names.clear();
    contents.clear();
    bytesCount = 0;
  }

  /** An entry is deleted, or written over. */
  synchronized void forget(String name) {
    names.remove(name);
    byte[] gone = contents.remove(name);
    bytesCount -= gone == null ? 0 : gone.length;
  }
}
