package io.pyspark.statestore.index;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.clean.UnlinkPlan;
import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.learn.RelocationMarkers;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;

/**
 * One simulated process's index for {@code tests/model}. {@link Rules}, {@link Index}, {@link UnlinkPlan}, {@link
 * RelocationMarkers} and {@link HybridClock} decide, as in production. The disk and the steps in between are the
 * model's.
 *
 * <p>Entries cross as text, one line each: kind, generation, crc32c, stamp, writer, offset, path.
 */
public final class ModelView {
  /** Bytes of a group. There are so many that tombstones are never most of a file, and always worth carrying over. */
  private static final long GROUP = 1 << 20;

  private final Index index = new Index();
  private final HybridClock clock = new HybridClock(() -> this.wall);
  private final Rules rules;
  private final RelocationMarkers markers;
  private final Map<String, List<Tombstone>> planned = new HashMap<>();
  private long wall;
  private long now;
  private long refresh;
  private long listedMs;

  /** Makes a view of an empty directory. */
  public ModelView(long closedAfterMs) throws StateStoreFilesException {
    Configuration conf = new Configuration(false);
    conf.set(Options.PREFIX + "closedAfter", closedAfterMs + "ms");
    Options options = Options.from(conf);
    rules = new Rules(() -> options, this::moment);
    // Only what needs no storage: the model makes and deletes the markers.
    markers = new RelocationMarkers(null, index, rules, null, null, Runnable::run);
  }

  /** Sets this process's wall clock, and the time that passes for all processes. */
  public void time(long wallMs, long nowMs) {
    wall = wallMs;
    now = nowMs;
  }

  public long nextStamp() {
    return clock.next();
  }

  public void opened(String name) {
    index.addIfAbsent(new MergedFile(name, MergedFile.Writer.THIS_PROCESS, moment()));
  }

  public void appended(String name, String entries, long stamp) {
    MergedFile file = index.file(name);
    file.appended(file.size() + GROUP, stamp, refresh);
    index.apply(file, parse(entries));
  }

  public void sealed(String name) {
    index.file(name).sealed();
  }

  public void left(String name) {
    index.file(name).left(0);
  }

  public void listed(String name) {
    index.addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, moment()));
  }

  /**
   * The file has been read to its end.
   *
   * @param stamp of the newest group that was not known, or -1
   * @param repeats names of the files that an index-only file covers
   */
  public void read(String name, String entries, long stamp, boolean isSealed, boolean indexOnly, String repeats) {
    MergedFile file = index.addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, moment()));
    index.apply(file, parse(entries));
    clock.observe(stamp);
    if (indexOnly) {
      file.indexOnly(repeats.lines().toList());
    }
    long size = file.size() + (stamp >= 0 ? GROUP : 0);
    long newest = stamp >= 0 ? Math.max(stamp, file.size() == 0 ? 0 : file.lastStamp()) : file.lastStamp();
    file.read(size, size, isSealed, newest, now, now, refresh);
  }

  public void remove(String name) {
    MergedFile file = index.file(name);
    if (file != null) {
      index.remove(file);
    }
  }

  public String names() {
    return index.files().stream().map(MergedFile::name).collect(Collectors.joining("\n"));
  }

  public boolean needsRead(String name) {
    MergedFile file = index.file(name);
    return file == null || rules.mustBeRead(file, false, true);
  }

  /** Deletes what is seen of a path; returns its key, or nothing. */
  public String delete(String path) {
    Tombstone tombstone = index.delete(path);
    return tombstone == null ? "" : tombstone.stamp() + " " + tombstone.writer();
  }

  /** Returns the file's name and the entry, or nothing. */
  public String find(String path) {
    Segment found = index.find(path);
    return found == null ? "" : found.file().name() + "\n" + format(found.entry());
  }

  /** Returns the live segments of a file. */
  public String live(String name) {
    MergedFile file = index.file(name);
    return file == null
        ? ""
        : index.liveSegments(file).stream().map(s -> format(s.entry())).collect(Collectors.joining("\n"));
  }

  /** Returns what a relocation of a file's live segments writes, with the offsets that they have now. */
  public String copies(String name) {
    MergedFile file = index.file(name);
    return file == null
        ? ""
        : index.liveSegments(file).stream()
            .filter(Segment::mayBeCopied)
            .map(s -> format(s.copiedEntry(s.entry().crc32c(), s.entry().offset())))
            .collect(Collectors.joining("\n"));
  }

  /** A refresh lists. */
  public void beginRefresh() {
    refresh++;
    listedMs = now;
  }

  /** How many refreshes have begun. */
  public long refreshes() {
    return refresh;
  }

  /** Returns the relocation markers that cleaning deletes. */
  public String expired() {
    return String.join("\n", markers.expired());
  }

  /** A refresh has ended, whose listing showed these markers, made or renewed then; see {@code Cleaner.clean}. */
  public void refreshed(String names, boolean complete, long modified) {
    Map<String, Long> listed =
        names.lines().filter(n -> !n.isEmpty()).collect(Collectors.toMap(n -> n, name -> modified));
    markers.listed(listed, refresh, complete, true, listedMs);
    if (complete) {
      TombstoneUse.prove(index, refresh, rules::isClosed, markers::noneSince);
    }
  }

  /** Returns the files that may go. This process wants them all: which process unlinks must not matter for safety. */
  public String plan() {
    planned.clear();
    List<String> names = new ArrayList<>();
    UnlinkPlan plan = UnlinkPlan.of(index, rules, f -> true, f -> false, Integer.MAX_VALUE);
    for (UnlinkPlan.Step step : plan.steps()) {
      names.add(step.file().name());
      planned.put(step.file().name(), step.carryOver());
    }
    return String.join("\n", names);
  }

  /** Returns what has to be written again before a planned file goes. */
  public String carry(String name) {
    return planned.get(name).stream().map(t -> format(t.toEntry())).collect(Collectors.joining("\n"));
  }

  // ---- what only the index service and those whom it serves ask

  /** The service says what is in a file, some of which may be known. */
  public void learn(String name, String entries) {
    index.apply(index.addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, moment())), parse(entries));
  }

  /** The clock has to stay above this stamp. */
  public void observe(long stamp) {
    clock.observe(stamp);
  }

  /** Returns all entries of a partition, each after the name of its file. */
  public String entries(String partition) {
    return index.entries(partition).entrySet().stream()
        .flatMap(found -> found.getValue().stream().map(entry -> found.getKey().name() + " " + format(entry)))
        .collect(Collectors.joining("\n"));
  }

  public long revision(String partition) {
    return index.revision(partition);
  }

  public void forget(String partition) {
    index.forgetPartition(partition);
  }

  private Clocks.Moment moment() {
    return new Clocks.Moment(now, now);
  }

  private static List<Entry> parse(String entries) {
    return entries
        .lines()
        .map(
            line -> {
              String[] part = line.split(" ");
              return new Entry(
                  Integer.parseInt(part[0]),
                  Entry.typeOf(part[6]),
                  Integer.parseInt(part[1]),
                  Integer.parseInt(part[2]),
                  Long.parseLong(part[3]),
                  Long.parseLong(part[4]),
                  Long.parseLong(part[5]),
                  1,
                  0,
                  part[6]);
            })
        .toList();
  }

  private static String format(Entry entry) {
    return entry.kind()
        + " "
        + entry.generation()
        + " "
        + entry.crc32c()
        + " "
        + entry.stamp()
        + " "
        + entry.writer()
        + " "
        + entry.offset()
        + " "
        + entry.path();
  }
}
