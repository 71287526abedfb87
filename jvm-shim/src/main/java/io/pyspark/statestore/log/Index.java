package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Entry;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

/**
 * The union of the entries of all merged files, in whatever order they come: per path the newest write that no
 * tombstone kills, per merged file the live segments that refer to it.
 *
 * <p>Every method takes the one lock for as long as a map look-up takes; none does I/O under it.
 */
public final class Index {
  private final Map<String, MergedFile> files = new LinkedHashMap<>();
  private final NavigableMap<String, Directory> directories = new TreeMap<>();
  private int liveCount;
  private long liveBytes;
  private long liveBytesWithEntries;

  /**
   * What there is in all.
   *
   * @param files merged files
   * @param physicalBytes of all files, dead ones and indexes included
   * @param liveSegments logical files
   * @param liveBytes of these
   */
  public record Totals(int files, long physicalBytes, int liveSegments, long liveBytes) {
    public static final Totals NOTHING = new Totals(0, 0, 0, 0);

    /** The sum of two checkpoints' totals. */
    public Totals plus(Totals other) {
      return new Totals(
          files + other.files,
          physicalBytes + other.physicalBytes,
          liveSegments + other.liveSegments,
          liveBytes + other.liveBytes);
    }

    /** Physical bytes per live byte; not a number where nothing lives. */
    public double spaceAmplification() {
      return liveBytes == 0 ? Double.NaN : (double) physicalBytes / liveBytes;
    }
  }

  private static final class Directory {
    private final Map<String, PathState> paths = new HashMap<>();
    private int liveCount;
  }

  /** All that is known of one path. */
  private static final class PathState {
    /** Segments in existing files, dead ones included: a tombstone must outlive those that it kills (rule 6). */
    private final List<Segment> segments = new ArrayList<>(1);

    /** Which existing files say that the path was deleted. */
    private final Map<MergedFile, Tombstone> tombstones = new HashMap<>(0);

    private Segment live;
    /** The highest tombstone ever seen; never lowered, so that a late-read entry stays dead. */
    private Tombstone tombstone;
  }

  /** Adds a file, without entries yet; returns the one that is known by this name. */
  synchronized MergedFile addIfAbsent(MergedFile file) {
    MergedFile known = files.putIfAbsent(file.name(), file);
    return known == null ? file : known;
  }

  synchronized MergedFile file(String name) {
    return files.get(name);
  }

  /** The files that exist as far as is known. */
  public synchronized List<MergedFile> files() {
    return new ArrayList<>(files.values());
  }

  /**
   * Adds entries of a file; those that are known already change nothing.
   *
   * @return false where the file does not exist any more, and nothing was added
   */
  synchronized boolean apply(MergedFile file, Collection<Entry> entries) {
    if (files.get(file.name()) != file) {
      return false;
    }
    for (Entry entry : entries) {
      if (entry.isPut()) {
        addSegment(new Segment(entry, file));
      } else {
        Tombstone tombstone = new Tombstone(entry.path(), entry.stamp(), entry.writer());
        if (file.tombstones.add(tombstone)) {
          state(entry.path()).tombstones.merge(file, tombstone, (a, b) -> a.covers(b) ? a : b);
        }
        kill(tombstone);
      }
    }
    return true;
  }

  /** A deletion that this process will write soon: it already reads as deleted here. */
  synchronized void applyUnwritten(Tombstone tombstone) {
    kill(tombstone);
  }

  private void addSegment(Segment segment) {
    PathState state = state(segment.path());
    for (Segment known : state.segments) {
      if (known.isSamePlace(segment)) {
        return;
      }
    }
    state.segments.add(segment);
    segment.file().segments.add(segment);
    chooseLive(segment.path(), state);
  }

  private void kill(Tombstone tombstone) {
    PathState state = state(tombstone.path());
    if (state.tombstone == null || !state.tombstone.covers(tombstone)) {
      state.tombstone = tombstone;
      chooseLive(tombstone.path(), state);
    }
  }

  private void chooseLive(String path, PathState state) {
    Segment best = null;
    for (Segment segment : state.segments) {
      if (best == null || segment.beats(best)) {
        best = segment;
      }
    }
    if (best != null && state.tombstone != null && state.tombstone.kills(best)) {
      best = null;
    }
    if (best != state.live) {
      count(path, state.live, -1);
      count(path, best, 1);
      state.live = best;
    }
  }

  private void count(String path, Segment segment, int sign) {
    if (segment != null) {
      segment.file().liveCount += sign;
      segment.file().liveBytes += sign * segment.length();
      liveCount += sign;
      liveBytes += sign * segment.length();
      liveBytesWithEntries += sign * segment.lengthWithEntries();
      directories.get(parent(path)).liveCount += sign;
    }
  }

  private PathState state(String path) {
    return directories
        .computeIfAbsent(parent(path), d -> new Directory())
        .paths
        .computeIfAbsent(name(path), n -> new PathState());
  }

  private PathState stateOrNull(String path) {
    Directory directory = directories.get(parent(path));
    return directory == null ? null : directory.paths.get(name(path));
  }

  /** The live segment of a path, or null. */
  public synchronized Segment find(String path) {
    PathState state = stateOrNull(path);
    return state == null ? null : state.live;
  }

  /** The live segments directly in a directory. */
  public synchronized List<Segment> list(String directory) {
    Directory known = directories.get(directory);
    List<Segment> result = new ArrayList<>();
    if (known != null) {
      for (PathState state : known.paths.values()) {
        if (state.live != null) {
          result.add(state.live);
        }
      }
    }
    return result;
  }

  /** All live segments below a directory. */
  public synchronized List<Segment> listRecursively(String directory) {
    List<Segment> result = new ArrayList<>(list(directory));
    for (String below : below(directory).keySet()) {
      result.addAll(list(below));
    }
    return result;
  }

  /** Names of the directories directly in a directory that hold live segments, at any depth. */
  public synchronized List<String> subdirectories(String directory) {
    Map<String, Boolean> names = new LinkedHashMap<>();
    below(directory).forEach((path, known) -> {
      if (known.liveCount > 0) {
        int from = directory.isEmpty() ? 0 : directory.length() + 1;
        int to = path.indexOf('/', from);
        names.put(path.substring(from, to < 0 ? path.length() : to), true);
      }
    });
    return new ArrayList<>(names.keySet());
  }

  /** Whether anything lives in or below a directory. */
  public synchronized boolean isDirectory(String directory) {
    Directory known = directories.get(directory);
    return known != null && known.liveCount > 0
        || below(directory).values().stream().anyMatch(d -> d.liveCount > 0);
  }

  private Map<String, Directory> below(String directory) {
    return directory.isEmpty() ? directories : directories.subMap(directory + "/", directory + "0");
  }

  /** Rule 6: the tombstones of a file that hold down an entry elsewhere and that no other file repeats. */
  synchronized List<Tombstone> tombstonesToCarryOver(MergedFile file) {
    List<Tombstone> needed = new ArrayList<>();
    for (Tombstone tombstone : file.tombstones) {
      PathState state = stateOrNull(tombstone.path());
      if (state != null
          && state.segments.stream().anyMatch(s -> s.file() != file && tombstone.kills(s))
          && state.tombstones.entrySet().stream()
              .noneMatch(other -> other.getKey() != file && other.getValue().covers(tombstone))) {
        needed.add(tombstone);
      }
    }
    return needed;
  }

  /** Files that nothing live is in. */
  synchronized List<MergedFile> filesWithoutLiveSegments() {
    return files.values().stream().filter(f -> f.liveCount == 0).toList();
  }

  /** Forgets a file that does not exist any more, and its entries with it. */
  synchronized void remove(MergedFile file) {
    if (files.remove(file.name()) == null) {
      return;
    }
    for (Segment segment : file.segments) {
      PathState state = stateOrNull(segment.path());
      state.segments.remove(segment);
      chooseLive(segment.path(), state);
    }
    for (Tombstone tombstone : file.tombstones) {
      stateOrNull(tombstone.path()).tombstones.remove(file);
    }
    file.segments.forEach(s -> dropIfEmpty(s.path()));
    file.tombstones.forEach(t -> dropIfEmpty(t.path()));
  }

  private void dropIfEmpty(String path) {
    Directory directory = directories.get(parent(path));
    PathState state = directory == null ? null : directory.paths.get(name(path));
    if (state != null && state.segments.isEmpty() && state.tombstones.isEmpty()) {
      directory.paths.remove(name(path));
      if (directory.paths.isEmpty()) {
        directories.remove(parent(path));
      }
    }
  }

  /** Dead bytes of a file: what its size would shrink by if only the live segments were copied. */
  synchronized long deadBytes(MergedFile file) {
    return file.size() - file.liveBytes;
  }

  /** Bytes of all live segments. */
  public synchronized long liveBytes() {
    return liveBytes;
  }

  /** Bytes that the live segments take at least, however they are laid out. */
  synchronized long liveBytesWithEntries() {
    return liveBytesWithEntries;
  }

  /** Bytes of all files, dead ones and indexes included. */
  public synchronized long physicalBytes() {
    return files.values().stream().mapToLong(MergedFile::size).sum();
  }

  /** What there is in all; takes no longer than there are files. */
  public synchronized Totals totals() {
    return new Totals(files.size(), physicalBytes(), liveCount, liveBytes);
  }

  /** The segments of a file that are live. */
  synchronized List<Segment> liveSegments(MergedFile file) {
    return file.segments.stream().filter(s -> stateOrNull(s.path()).live == s).toList();
  }

  /** Live segments of a file: its reference count. */
  public synchronized int referenceCount(MergedFile file) {
    return file.liveCount;
  }

  private static String parent(String path) {
    int slash = path.lastIndexOf('/');
    return slash < 0 ? "" : path.substring(0, slash);
  }

  private static String name(String path) {
    return path.substring(path.lastIndexOf('/') + 1);
  }
}
