package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Entry;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.LongPredicate;
import java.util.function.Predicate;

/**
 * The union of the entries of all merged files, read in any order: for each path the newest write that no tombstone
 * kills, for each merged file how many live segments it holds.
 *
 * <p>Every method holds the one lock only as long as it looks things up in memory.
 */
public final class Index {
  private final Map<String, MergedFile> files = new LinkedHashMap<>();
  private final NavigableMap<String, Directory> directories = new TreeMap<>();
  private int liveCount;
  private long liveBytes;
  private long additions;

  /**
   * Counts over a checkpoint.
   *
   * @param physicalBytes of all files, dead ones and indexes included
   * @param liveSegments how many logical files there are
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

    /** Physical bytes per live byte; NaN where nothing lives. */
    public double spaceAmplification() {
      return liveBytes == 0 ? Double.NaN : (double) physicalBytes / liveBytes;
    }
  }

  private static final class Directory {
    private final Map<String, PathState> paths = new HashMap<>();
    private int liveCount;
    /** Number of the newest addition. */
    private long revision;
  }

  /** All that is known of one path. */
  private static final class PathState {
    /**
     * Segments in existing files, dead ones included, because a tombstone must outlive those that it kills (rule 6).
     */
    private final List<Segment> segments = new ArrayList<>(1);

    /** The highest tombstone of the path in each existing file that has one. */
    private final Map<MergedFile, Tombstone> tombstones = new HashMap<>(0);

    private Segment live;
    /** The highest tombstone ever seen. It is never lowered, so an entry that is read late stays dead. */
    private Tombstone tombstone;
  }

  /** Adds a file without entries, unless one of this name is known; returns the known one. */
  synchronized MergedFile addIfAbsent(MergedFile file) {
    MergedFile known = files.putIfAbsent(file.name(), file);
    return known == null ? file : known;
  }

  synchronized MergedFile file(String name) {
    return files.get(name);
  }

  /** The files that exist, as far as is known. */
  public synchronized List<MergedFile> files() {
    return new ArrayList<>(files.values());
  }

  /**
   * Adds entries of a file. Entries that are known already change nothing.
   *
   * @return false where the file no longer exists, and nothing was added
   */
  synchronized boolean apply(MergedFile file, Collection<Entry> entries) {
    if (files.get(file.name()) != file) {
      return false;
    }
    for (Entry entry : entries) {
      if (entry.isPut()) {
        addSegment(new Segment(entry, file));
      } else {
        Tombstone tombstone = Tombstone.of(entry);
        if (file.tombstones.add(tombstone)) {
          directory(entry.path()).revision = ++additions;
          state(entry.path())
              .tombstones
              .merge(file, tombstone, (a, b) -> Tombstone.compareCopies(a, file, b, file) >= 0 ? a : b);
        }
        kill(tombstone);
      }
    }
    return true;
  }

  /**
   * Rule 4: deletes what is seen of a path. It reads as deleted here at once, and for others when the tombstone is
   * written.
   *
   * @return the tombstone, or null where nothing lives at the path
   */
  synchronized Tombstone delete(String path) {
    Segment seen = find(path);
    if (seen == null) {
      return null;
    }
    Tombstone tombstone = Tombstone.of(seen);
    kill(tombstone);
    return tombstone;
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
    directory(segment.path()).revision = ++additions;
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
      segment.file().liveBytes += sign * segment.ownLength();
      segment.file().liveBytesWithEntries += sign * segment.lengthWithEntries();
      liveCount += sign;
      liveBytes += sign * segment.ownLength();
      directories.get(parent(path)).liveCount += sign;
    }
  }

  private Directory directory(String path) {
    return directories.computeIfAbsent(parent(path), d -> new Directory());
  }

  private PathState state(String path) {
    return directory(path)
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

  /** Names of a directory's direct subdirectories in which anything lives, at any depth. */
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

  /**
   * The tombstones of a file that must be written again before it goes (rule 6). Those that a greater copy in another
   * file repeats are left out, and those that are proven unneeded.
   *
   * @param holding those that hold down an entry in another file
   * @param victims the files of these entries
   * @param idle those that hold down nothing that is known
   */
  record TombstoneUse(List<Tombstone> holding, Set<MergedFile> victims, List<Tombstone> idle) {}

  synchronized TombstoneUse useOfTombstones(MergedFile file) {
    TombstoneUse use = new TombstoneUse(new ArrayList<>(), new HashSet<>(), new ArrayList<>());
    for (Tombstone tombstone : file.tombstones) {
      PathState state = stateOrNull(tombstone.path());
      if (isRepeated(state, tombstone, file)) {
        continue;
      }
      if (addVictims(state, tombstone, file, use.victims)) {
        use.holding.add(tombstone);
      } else if (!file.unneeded.contains(tombstone)) {
        use.idle.add(tombstone);
      }
    }
    return use;
  }

  private static boolean isRepeated(PathState state, Tombstone tombstone, MergedFile file) {
    return state.tombstones.entrySet().stream()
        .anyMatch(copy -> copy.getKey() != file
            && Tombstone.compareCopies(copy.getValue(), copy.getKey(), tombstone, file) > 0);
  }

  private static boolean addVictims(
      PathState state, Tombstone tombstone, MergedFile file, Set<MergedFile> victims) {
    boolean any = false;
    for (Segment segment : state.segments) {
      if (segment.file() != file && tombstone.kills(segment)) {
        victims.add(segment.file());
        any = true;
      }
    }
    return any;
  }

  /**
   * Finds, after a complete refresh, the tombstones in closed files that are unneeded for ever: no file held what they
   * kill when the refresh began, and no relocation that may have begun before it is still under way.
   *
   * @param refresh number of the refresh
   * @param closed rule 7
   * @param noRelocationSince whether every relocation that was under way at a refresh has ended since
   */
  synchronized void proveTombstones(long refresh, Predicate<MergedFile> closed, LongPredicate noRelocationSince) {
    for (MergedFile file : files.values()) {
      // What was read by this very refresh may be younger than other files' indexes that it read.
      if (file.unneeded.size() == file.tombstones.size() || file.changedIn() >= refresh || !closed.test(file)) {
        continue;
      }
      for (Tombstone tombstone : file.tombstones) {
        if (file.unneeded.contains(tombstone)) {
          continue;
        }
        if (addVictims(stateOrNull(tombstone.path()), tombstone, file, new HashSet<>())) {
          file.idleSince.remove(tombstone);
        } else if (noRelocationSince.test(file.idleSince.computeIfAbsent(tombstone, t -> refresh))) {
          file.unneeded.add(tombstone);
          file.idleSince.remove(tombstone);
        }
      }
    }
  }

  /**
   * The file with the highest stamp, or null where there is none. It is kept however dead it is (rule 6): later
   * processes take the highest stamp from the files, and their stamps must be above it.
   */
  synchronized MergedFile newest() {
    return files.values().stream()
        .max(Comparator.comparingLong(MergedFile::lastStamp).thenComparing(MergedFile::name))
        .orElse(null);
  }

  /** The files in which nothing lives. */
  synchronized List<MergedFile> filesWithoutLiveSegments() {
    return files.values().stream().filter(f -> f.liveCount == 0).toList();
  }

  /** Forgets a file that no longer exists, with its entries. */
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

  /** Bytes of all live segments, without those that are in files of other checkpoints. */
  public synchronized long liveBytes() {
    return liveBytes;
  }

  /**
   * Bytes of files that are neither live segments nor their index entries.
   *
   * @param counts whether a file counts
   */
  synchronized long garbage(Predicate<MergedFile> counts) {
    return files.values().stream().filter(counts).mapToLong(f -> f.size() - f.liveBytesWithEntries).sum();
  }

  /** Bytes of all files, dead ones and indexes included. */
  public synchronized long physicalBytes() {
    return files.values().stream().mapToLong(MergedFile::size).sum();
  }

  /** Counts over the checkpoint. This takes time in proportion to the number of files. */
  public synchronized Totals totals() {
    return new Totals(files.size(), physicalBytes(), liveCount, liveBytes);
  }

  /** A file's live segments. */
  synchronized List<Segment> liveSegments(MergedFile file) {
    return file.segments.stream().filter(s -> stateOrNull(s.path()).live == s).toList();
  }

  /** The number of a file's live segments. */
  public synchronized int referenceCount(MergedFile file) {
    return file.liveCount;
  }

  /**
   * All that a file says: each of its entries once, dead ones and tombstones too, in any order. Of a closed file that was
   * read whole, these are the entries of its index.
   */
  synchronized List<Entry> entries(MergedFile file) {
    List<Entry> entries = new ArrayList<>(file.segments.size() + file.tombstones.size());
    file.segments.forEach(segment -> entries.add(segment.entry()));
    file.tombstones.forEach(tombstone -> entries.add(tombstone.toEntry()));
    return entries;
  }

  // ---- partitions

  /**
   * Adds the entries of a group as {@link #apply} does.
   *
   * @param revisions gets each partition of the group with its revisions before and after, between which nothing else
   *     was added
   */
  synchronized void applyReport(
      MergedFile file, Collection<Entry> entries, Map<String, ServiceMessages.Span> revisions) {
    Set<String> touched = new HashSet<>();
    entries.forEach(entry -> touched.add(ServedPartitions.partition(entry.path())));
    Map<String, Long> before = new HashMap<>();
    touched.forEach(partition -> before.put(partition, revision(partition)));
    apply(file, entries);
    touched.forEach(partition ->
        revisions.put(partition, new ServiceMessages.Span(before.get(partition), revision(partition))));
  }

  /** Grows whenever an entry of a partition is added that was not known; 0 where nothing is known of it. */
  synchronized long revision(String partition) {
    return partitionOf(partition).values().stream().mapToLong(d -> d.revision).max().orElse(0);
  }

  /** All entries of a partition, by the file in which they count. */
  synchronized Map<MergedFile, List<Entry>> entries(String partition) {
    Map<MergedFile, List<Entry>> found = new LinkedHashMap<>();
    for (Directory directory : partitionOf(partition).values()) {
      for (PathState state : directory.paths.values()) {
        state.segments.forEach(s -> found.computeIfAbsent(s.file(), f -> new ArrayList<>()).add(s.entry()));
        state.tombstones.forEach(
            (file, tombstone) -> found.computeIfAbsent(file, f -> new ArrayList<>()).add(tombstone.toEntry()));
      }
    }
    return found;
  }

  /** Forgets what is known of a partition. */
  synchronized void forgetPartition(String partition) {
    Map<String, Directory> forgotten = new LinkedHashMap<>(partitionOf(partition));
    for (Map.Entry<String, Directory> directory : forgotten.entrySet()) {
      for (PathState state : directory.getValue().paths.values()) {
        if (state.live != null) {
          count(state.live.path(), state.live, -1);
        }
        state.segments.forEach(s -> s.file().segments.remove(s));
      }
      directories.remove(directory.getKey());
    }
    String below = partition + "/";
    files.values().forEach(file -> file.tombstones.removeIf(t -> t.path().startsWith(below)));
  }

  /** The partitions of which anything is known. */
  synchronized Set<String> partitions() {
    Set<String> found = new HashSet<>();
    directories.keySet().forEach(directory -> found.add(ServedPartitions.partition(directory)));
    return found;
  }

  private NavigableMap<String, Directory> partitionOf(String partition) {
    NavigableMap<String, Directory> found = new TreeMap<>();
    Directory own = directories.get(partition);
    if (own != null) {
      found.put(partition, own);
    }
    found.putAll(below(partition));
    return found;
  }

  private static String parent(String path) {
    int slash = path.lastIndexOf('/');
    return slash < 0 ? "" : path.substring(0, slash);
  }

  private static String name(String path) {
    return path.substring(path.lastIndexOf('/') + 1);
  }
}
