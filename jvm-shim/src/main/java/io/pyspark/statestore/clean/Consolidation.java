package io.pyspark.statestore.clean;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.MergedFileWriter;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.learn.Pins;
import io.pyspark.statestore.write.OpenFile;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSError;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes index-only files, so that a cold process opens few files, however long the history is: those that cannot be
 * repeated, because they are not sealed or not this checkpoint's, and up to {@link #MOST_OPENS} in all. An index-only
 * file states nothing new. What is written and what is removed here may be lost at any moment.
 *
 * <p><b>Which files.</b> As in Python: sealed ones that were read whole and have their own name; no reference files. An
 * older index-only file goes when each file that it repeats is repeated by one of a higher stamp. That is a total
 * order, so two processes never each remove what the other one keeps, and the highest stamp stays visible (rule 3).
 *
 * <p><b>How much is written.</b> If one file repeated all, each dozen new files would have every entry written again.
 * So sizes are geometric, as in a log-structured merge tree: a new index-only file takes in those of at most {@link
 * #RATIO} times its size, smallest first. A larger one stays as it is until the sum has grown. Those that stay differ
 * by more than that ratio, so there are at most eight between {@link #SMALL} and {@link #LARGEST}. An entry is written
 * O(log n) times: 10 to 22 times on average while 100,000 files come one by one, and 7 times if they come by the
 * thousand.
 */
final class Consolidation {
  private static final Logger LOG = LoggerFactory.getLogger(Consolidation.class);

  /** So many files a cold process opens, as long as few of them are open or otherwise on their own. */
  static final int MOST_OPENS = 20;

  /** So many of these are left for files that cannot be repeated. Where there are more, they come on top. */
  static final int LEFT_FOR_OTHERS = 8;

  /** Another index-only file has to save so many opens. */
  static final int WORTH_IT = 5;

  /** In bytes. The call to write a smaller file costs more than what is in it, so smaller ones are all near. */
  static final long SMALL = 16 << 10;

  static final int RATIO = 4;

  /**
   * Bytes of an index-only file at most, for it is read and written as one array. Three million segments take as many.
   */
  static final long LARGEST = 256 << 20;

  private static final int BUFFER = 64 * 1024;

  /** The order of entries is that of Python's consolidation, whatever they were read from. */
  private static final Comparator<Entry> ORDER =
      Comparator.comparingInt(Entry::fileRef)
          .thenComparingInt(Entry::kind)
          .thenComparingLong(Entry::offset)
          .thenComparingLong(Entry::stamp)
          .thenComparingLong(Entry::writer)
          .thenComparingInt(Entry::generation);

  /** A total order in which all processes agree. */
  private static final Comparator<MergedFile> RANK =
      Comparator.comparingLong(MergedFile::groupStamp).thenComparing(MergedFile::name);

  private final OpenFile.Factory files;
  private final Pins pins;

  Consolidation(OpenFile.Factory files, Pins pins) {
    this.files = files;
    this.pins = pins;
  }

  // ---- what to do

  /**
   * An index-only file that may go once others repeat what it says.
   *
   * @param size bytes that a cold process reads
   * @param useful how many of these are about files that exist, and that no newer index-only file repeats
   */
  record Replaceable(String name, long size, long useful) {
    /** Whether a cold process reads much of it in vain. */
    boolean isMostlyHistory() {
      return size > RATIO * SMALL && 2 * useful < size;
    }
  }

  /**
   * Decides what a new index-only file is to repeat, besides the files that none repeats yet.
   *
   * @param others files that a cold process opens in any case
   * @param unrepeated files that could be repeated and are not
   * @param bytes of the entries of these
   * @param indexes the index-only files
   * @return the index-only files to take in; null if none is to be written
   */
  static Set<String> plan(int others, int unrepeated, long bytes, Collection<Replaceable> indexes) {
    boolean crowded = isCrowded(others, unrepeated, indexes.size());
    if (!crowded && indexes.stream().noneMatch(Replaceable::isMostlyHistory)) {
      return null;
    }
    Set<String> taken = new HashSet<>();
    boolean saves = false;
    long sum = Math.min(bytes, LARGEST);
    for (Replaceable each : indexes.stream().sorted(Comparator.comparingLong(Replaceable::useful)).toList()) {
      boolean isNear = each.useful <= RATIO * Math.max(sum, SMALL);
      if (sum + each.useful <= LARGEST && (isNear || each.isMostlyHistory())) {
        taken.add(each.name);
        sum += each.useful;
        saves |= each.isMostlyHistory();
      }
    }
    saves |= crowded && unrepeated + taken.size() > WORTH_IT;
    return saves ? taken : null;
  }

  private static boolean isCrowded(int others, int unrepeated, int indexes) {
    return unrepeated + indexes > MOST_OPENS - Math.min(others, LEFT_FOR_OTHERS);
  }

  /**
   * What there is.
   *
   * @param unrepeated files that no index-only file repeats, and that one may repeat
   * @param repeats by index-only file, what it repeats and no higher one does
   * @param unneeded index-only files all of which higher ones repeat
   * @param others how many other files a cold process opens
   */
  private record View(
      List<MergedFile> unrepeated, Map<MergedFile, List<MergedFile>> repeats, List<MergedFile> unneeded, int others) {}

  private View look() {
    Map<String, MergedFile> left = new HashMap<>();
    List<MergedFile> indexes = new ArrayList<>();
    for (MergedFile file : files.index().files()) {
      if (file.isIndexOnly() && file.isSealed()) {
        indexes.add(file);
      } else {
        left.put(file.name(), file);
      }
    }
    indexes.sort(RANK.reversed());
    Set<String> existing = Set.copyOf(left.keySet());
    Map<MergedFile, List<MergedFile>> repeats = new LinkedHashMap<>();
    List<MergedFile> unneeded = new ArrayList<>();
    int others = 0;
    for (MergedFile each : indexes) {
      List<MergedFile> mine = each.covered().stream().filter(left::containsKey).map(left::remove).toList();
      if (pins.hold(each) || !mine.stream().allMatch(MergedFile::mayBeRepeated)) {
        others++;
      } else if (!mine.isEmpty()) {
        repeats.put(each, mine);
      } else if (each.covered().stream().anyMatch(existing::contains)) {
        unneeded.add(each);
      }
    }
    List<MergedFile> unrepeated = left.values().stream().filter(MergedFile::mayBeRepeated).toList();
    return new View(unrepeated, repeats, unneeded, others + left.size() - unrepeated.size());
  }

  /** The index-only files that nobody needs any more: others repeat what they say. */
  List<MergedFile> unneeded() {
    return look().unneeded;
  }

  // ---- doing it

  /**
   * Writes an index-only file, if a cold process would have to open too many files.
   *
   * @return the older ones that nobody needs any more
   */
  List<MergedFile> run() throws IOException {
    View view = look();
    List<Replaceable> indexes =
        view.repeats.entrySet().stream()
            .map(e -> new Replaceable(e.getKey().name(), e.getKey().size(), useful(e.getKey(), e.getValue())))
            .toList();
    // The entries are looked at only where that can matter.
    boolean crowded = isCrowded(view.others, view.unrepeated.size(), indexes.size());
    Map<String, List<Entry>> entries = crowded ? oldestThatFit(view.unrepeated) : Map.of();
    Set<String> taken = plan(view.others, view.unrepeated.size(), bytes(entries), indexes);
    if (taken == null) {
      return view.unneeded;
    }
    pins.checkUnclaimed();
    Map<String, List<Entry>> repeated = new TreeMap<>(entries);
    view.repeats.forEach(
        (index, mine) -> {
          if (taken.contains(index.name())) {
            mine.forEach(file -> read(file, repeated));
          }
        });
    write(repeated);
    return look().unneeded;
  }

  /** What all that it repeats takes, times the share of that which still matters. */
  private static long useful(MergedFile index, List<MergedFile> mine) {
    return (long) ((double) index.size() * mine.size() / index.covered().size());
  }

  private Map<String, List<Entry>> oldestThatFit(List<MergedFile> unrepeated) {
    Map<String, List<Entry>> entries = new TreeMap<>();
    long sum = 0;
    for (MergedFile file : unrepeated.stream().sorted(Comparator.comparing(MergedFile::name)).toList()) {
      read(file, entries);
      sum += bytes(file.name(), entries.getOrDefault(file.name(), List.of()));
      if (sum > LARGEST && entries.size() > 1) {
        entries.remove(file.name());
        break;
      }
    }
    return entries;
  }

  private void read(MergedFile file, Map<String, List<Entry>> into) {
    List<Entry> entries = files.index().entries(file);
    // One that has gone meanwhile may be known in part.
    if (files.index().file(file.name()) == file) {
      into.put(file.name(), entries);
    }
  }

  private static long bytes(Map<String, List<Entry>> entries) {
    return entries.entrySet().stream().mapToLong(e -> bytes(e.getKey(), e.getValue())).sum();
  }

  private static long bytes(String name, List<Entry> entries) {
    return name.length() + 4 + entries.stream().mapToLong(e -> Entry.SIZE + 4L + e.path().length()).sum();
  }

  private void write(Map<String, List<Entry>> byFile) throws IOException {
    List<String> names = List.copyOf(byFile.keySet());
    List<Entry> entries = new ArrayList<>();
    for (int ref = 1; ref <= names.size(); ref++) {
      for (Entry entry : byFile.get(names.get(ref - 1))) {
        entries.add(entry.in(ref));
      }
    }
    entries.sort(ORDER);
    long now = Clocks.wallMs();
    String name = files.writer().nextFileName(now, Storage.INDEX_SUFFIX);
    MergedFile file = new MergedFile(name, MergedFile.Writer.THIS_PROCESS, files.rules().now());
    // Known before it exists: a refresh that lists it in between must not take it for another process's.
    files.index().addIfAbsent(file);
    // Above all that is known: readers of this file see no stamps of those that it repeats (rule 3).
    long stamp = files.clock().next();
    long size = new Attempt(file).write(now, entries, names, stamp);
    file.indexOnly(names);
    file.appended(size, stamp, files.refreshNumber().getAsLong());
    // Last: a closed file that repeats nothing would be unlinked.
    file.sealed();
    LOG.info(
        "Wrote {} of {}, which repeats {} files ({} entries)",
        name,
        files.storage().checkpoint(),
        names.size(),
        entries.size());
  }

  /** The writing of one file, which may fail anywhere. */
  private final class Attempt {
    private final MergedFile file;
    private FSDataOutputStream out;

    /** Whether others may see the whole file, and rely on its stamp. */
    private boolean mayBeSeen;

    Attempt(MergedFile file) {
      this.file = file;
    }

    /** Returns the file's size, when it is durable. */
    long write(long createdMs, List<Entry> entries, List<String> names, long stamp) throws IOException {
      boolean done = false;
      try {
        out = files.storage().create(file.name());
        BufferedOutputStream buffered = new BufferedOutputStream(out, BUFFER);
        MergedFileWriter writer = new MergedFileWriter(buffered, files.writer().header(createdMs));
        writer.sealIndexOnly(entries, names, stamp);
        mayBeSeen = true;
        buffered.flush();
        if (files.storage().canFlush(out)) {
          out.hsync();
        }
        files.storage().close(out, file.name(), writer.position());
        files.storage().keepNames();
        done = true;
        return writer.position();
      } catch (FSError e) {
        // Hadoop's local file system reports a full disk so.
        throw new IOException(e);
      } finally {
        if (!done) {
          giveUp();
        }
      }
    }

    /** Leaves what may be a whole file to the next refresh, which reads what has become of it; deletes all else. */
    private void giveUp() {
      Storage storage = files.storage();
      try {
        if (out != null) {
          out.close();
        }
        if (!mayBeSeen) {
          storage.delete(file.name());
        }
      } catch (IOException | RuntimeException | Error e) {
        LOG.debug("{} of {} could neither be written nor removed", file, storage.checkpoint(), e);
      }
      if (mayBeSeen) {
        storage.release(file.name());
      }
      files.index().remove(file);
    }
  }
}
