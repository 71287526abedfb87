package io.pyspark.statestore.tables;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;

/**
 * The files with holes that the loaded version of a store does not have, and of which there may still be hard links:
 * Spark keeps some for a version that it may load again, or for a snapshot that waits for its upload.
 *
 * <p>They stay known, and are held open, for as long as they have a name below the store's directory. One that was
 * forgotten too early would be read as if its holes were data.
 */
final class RetiredFiles {
  private final Set<PartialFile> files = ConcurrentHashMap.newKeySet();

  void add(PartialFile file) {
    files.add(file);
  }

  void remove(PartialFile file) {
    files.remove(file);
  }

  /** The loaded version has some of them again. */
  void removeAll(Collection<PartialFile> loaded) {
    files.removeAll(loaded);
  }

  boolean isEmpty() {
    return files.isEmpty();
  }

  int count() {
    return files.size();
  }

  /** Has nothing any more; returns what it had. */
  List<PartialFile> takeAll() {
    List<PartialFile> all = new ArrayList<>(files);
    files.clear();
    return all;
  }

  /**
   * Forgets files that have no name any more. It looks twice for their names: one that is made where it has just
   * looked, while another is deleted where it has not looked yet, it would miss.
   *
   * @param root below which the store has all that it has on this disk
   */
  void forgetNameless(Path root) throws IOException {
    List<PartialFile> nameless = withoutName(List.copyOf(files), root);
    for (PartialFile file : nameless.isEmpty() ? nameless : withoutName(nameless, root)) {
      if (files.remove(file)) {
        file.close();
      }
    }
  }

  private static List<PartialFile> withoutName(List<PartialFile> files, Path root) throws IOException {
    Set<Object> found = keysBelow(root);
    return files.stream().filter(file -> !found.contains(file.key()) && !PartialFiles.isNamed(file.key())).toList();
  }

  private static Set<Object> keysBelow(Path root) throws IOException {
    Set<Object> found = new HashSet<>();
    try (Stream<Path> all = Files.walk(root)) {
      for (Path path : (Iterable<Path>) all::iterator) {
        try {
          found.add(PartialFiles.keyOf(path));
        } catch (NoSuchFileException e) {
          // An upload has just ended, and deletes its links.
        }
      }
    } catch (UncheckedIOException e) {
      if (!(e.getCause() instanceof NoSuchFileException)) {
        throw e.getCause();
      }
      // As above, of a directory. What was not seen stays for now.
      return new HashSet<>(PartialFiles.allKeys());
    }
    return found;
  }
}
