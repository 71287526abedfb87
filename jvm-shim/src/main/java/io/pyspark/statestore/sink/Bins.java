package io.pyspark.statestore.sink;

import io.pyspark.statestore.sink.join.PartNames;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * Decides which files become one file. Files of one directory, that is of one partition value, whose names have the
 * same ending, that is the same compression, are joined in the order in which they were written; the same files give
 * the same bins.
 *
 * <p>A file that has the target size stays as it is. The others of a directory are dealt out to as many bins as they
 * fill, about equally. So of {@code n} bytes come at most {@code ceil(n / target)} files, each smaller than twice the
 * target. Where rows may wait for more, they do until they fill a bin, and no bin is smaller than that.
 *
 * <p>Dealing out again what a bin has would give other bins: whoever plans keeps the plan.
 */
final class Bins {
  private Bins() {}

  /**
   * Files that become one.
   *
   * @param directory of the partition value below the sink's, such as {@code p=1/q=x}; empty without partition columns
   * @param files at least one, in order
   * @param waits whether no reader is to see them yet
   */
  record Bin(String directory, List<FileStatus> files, boolean waits) implements Serializable {
    /** Whether there is nothing to join. */
    boolean isAsItIs() {
      return files.size() == 1;
    }
  }

  /** Of which files may become one: those of a directory, as {@link Bin#directory}, whose names end alike. */
  record Kind(String directory, String ending) {}

  /**
   * Deals out.
   *
   * @param root the directory that holds all of them
   * @param files in the order in which they were written
   * @param target bytes
   */
  static List<Bin> of(Path root, List<FileStatus> files, long target) {
    Map<Kind, List<FileStatus>> byKind = new LinkedHashMap<>();
    addTo(byKind, root, files);
    return of(byKind, target, directory -> false);
  }

  /** Adds files to those of their directories and endings. */
  static void addTo(Map<Kind, List<FileStatus>> byKind, Path root, List<FileStatus> files) {
    for (FileStatus file : files) {
      addTo(byKind, directory(root, file.getPath()), file);
    }
  }

  /** Adds a file to those of a directory. */
  static void addTo(Map<Kind, List<FileStatus>> byKind, String directory, FileStatus file) {
    Kind kind = new Kind(directory, PartNames.ending(file.getPath().getName()));
    byKind.computeIfAbsent(kind, k -> new ArrayList<>()).add(file);
  }

  /**
   * Deals out.
   *
   * @param byKind files in the order in which they were written
   * @param target bytes
   * @param mayWait tells of a directory whether what does not fill a bin waits
   */
  static List<Bin> of(Map<Kind, List<FileStatus>> byKind, long target, Predicate<String> mayWait) {
    List<Bin> bins = new ArrayList<>();
    byKind.forEach(
        (kind, own) -> {
          String directory = kind.directory();
          List<FileStatus> small = new ArrayList<>();
          for (FileStatus file : own) {
            if (file.getLen() >= target) {
              bins.add(new Bin(directory, List.of(file), false));
            } else {
              small.add(file);
            }
          }
          boolean waits = mayWait.test(directory);
          long full = bytes(small) / target;
          if (waits && full == 0) {
            dealOut(small, 1).forEach(bin -> bins.add(new Bin(directory, bin, true)));
          } else {
            long count = waits || bytes(small) % target == 0 ? full : full + 1;
            dealOut(small, Math.max(1, count)).forEach(bin -> bins.add(new Bin(directory, bin, false)));
          }
        });
    return bins;
  }

  private static List<List<FileStatus>> dealOut(List<FileStatus> files, long count) {
    long total = bytes(files);
    List<List<FileStatus>> bins = new ArrayList<>();
    long before = 0;
    long last = -1;
    for (FileStatus file : files) {
      // By its middle, so that no bin is much smaller or larger than the others.
      double middle = before + file.getLen() / 2.0;
      long bin = total == 0 ? 0 : Math.min(count - 1, (long) (middle * count / total));
      if (bin != last) {
        bins.add(new ArrayList<>());
        last = bin;
      }
      bins.get(bins.size() - 1).add(file);
      before += file.getLen();
    }
    return bins;
  }

  static long bytes(List<FileStatus> files) {
    return files.stream().mapToLong(FileStatus::getLen).sum();
  }

  /** The directory of a file below a root, as {@link Bin#directory}. */
  static String directory(Path root, Path file) {
    return SinkPaths.below(root, file.getParent());
  }
}
