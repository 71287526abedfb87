package io.pyspark.statestore.index;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.format.Entry;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.Collectors;

/** An {@link Index} that a test drives step by step. Entries cross as text, one line each: all fields, path last. */
public final class IndexView {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Index index = new Index();

  /** Adds a file, unless it is known. */
  public void add(String name) {
    index.addIfAbsent(new MergedFile(name, MergedFile.Writer.NOBODY, new Clocks.Moment(0, 0)));
  }

  /** The file is so long now. */
  public void grow(String name, long size) {
    index.file(name).read(size, size, true, 1, 1, 1, 0);
  }

  /** The file is a reference file. */
  public void refer(String name) {
    index.file(name).references(List.of("/other/state/_merged/1790000000000-7b5133a07a4d09ff-1.merged"), List.of());
  }

  public void apply(String name, String entries) {
    index.apply(index.file(name), parse(entries));
  }

  public void remove(String name) {
    index.remove(index.file(name));
  }

  /** Returns whether anything lived there. */
  public boolean delete(String path) {
    return index.delete(path) != null;
  }

  /** A complete refresh has ended, with no relocation that may still write, or with one. */
  public void prove(long refresh, boolean noRelocation) {
    TombstoneUse.prove(index, refresh, file -> true, since -> noRelocation);
  }

  public void forget(String partition) {
    index.forgetPartition(partition);
  }

  /** Returns the paths that walks over a file's entries see, or nothing where its lists are longer. */
  public String visited(String name) {
    List<String> found = new ArrayList<>();
    MergedFile file = index.file(name);
    index.held(file).segments().walk(index, file, () -> true, (store, path) -> found.add("1 " + path));
    index.held(file).tombstones().walk(index, file, () -> true, (store, path) -> found.add("2 " + path));
    return found.size() < index.held(file).segments().size() + index.held(file).tombstones().size()
        ? ""
        : String.join("\n", found);
  }

  /** Returns what the index says of each of these paths and directories, one a line, and of all files, as JSON. */
  public String says(String paths, String directories) throws JsonProcessingException {
    Map<String, Object> said = new LinkedHashMap<>();
    said.put("find", by(paths, path -> index.find(path) == null ? null : format(index.find(path))));
    said.put("list", by(directories, directory -> formatAll(index.list(directory))));
    said.put("below", by(directories, directory -> formatAll(index.listRecursively(directory))));
    said.put("subdirectories", by(directories, index::subdirectories));
    said.put("isDirectory", by(directories, index::isDirectory));
    Map<String, Object> files = new LinkedHashMap<>();
    for (MergedFile file : index.files()) {
      TombstoneUse use = TombstoneUse.of(index, file);
      files.put(
          file.name(),
          Map.of(
              "references", index.referenceCount(file),
              "live", formatAll(index.liveSegments(file)),
              "garbage", index.garbage(file),
              "holding", use.holding().stream().map(t -> format(t.toEntry())).toList(),
              "idle", use.idle().stream().map(t -> format(t.toEntry())).toList(),
              "victims", use.victims().stream().map(MergedFile::name).toList()));
    }
    said.put("files", files);
    said.put("garbage", index.garbage());
    Totals totals = index.totals();
    said.put("totals", List.of(totals.files(), totals.physicalBytes(), totals.liveSegments(), totals.liveBytes()));
    Map<String, Object> partitions = new LinkedHashMap<>();
    for (String partition : index.partitions()) {
      Map<String, Object> entries = new LinkedHashMap<>();
      index
          .entries(partition)
          .forEach((file, all) -> entries.put(file.name(), all.stream().map(IndexView::format).toList()));
      partitions.put(partition, Map.of("revision", index.revision(partition), "entries", entries));
    }
    said.put("partitions", partitions);
    return JSON.writeValueAsString(said);
  }

  /** The number of a partition. */
  public long revision(String partition) {
    return index.revision(partition);
  }

  /** Threads add, remove, forget and walk at the same time; returns what does not agree afterwards. */
  public static List<String> race(long seed) throws InterruptedException, ExecutionException {
    Index index = new Index();
    AtomicInteger number = new AtomicInteger();
    ExecutorService threads = Executors.newFixedThreadPool(4);
    List<Future<?>> done = new ArrayList<>();
    for (int thread = 0; thread < 4; thread++) {
      Random random = new Random(seed + thread);
      done.add(
          threads.submit(
              () -> {
                for (int round = 0; round < 30; round++) {
                  someWork(index, random, number);
                }
              }));
    }
    threads.shutdown();
    for (Future<?> each : done) {
      each.get();
    }
    return contradictions(index);
  }

  private static void someWork(Index index, Random random, AtomicInteger number) {
    List<MergedFile> files = index.files();
    MergedFile file = files.isEmpty() ? null : files.get(random.nextInt(files.size()));
    switch (file == null ? 0 : random.nextInt(8)) {
      case 1 -> index.remove(file);
      case 2 -> index.forgetPartition("0/" + random.nextInt(10));
      case 3 -> TombstoneUse.prove(index, 1 + random.nextInt(1_000), f -> true, refresh -> random.nextBoolean());
      case 4 -> TombstoneUse.of(index, file);
      case 5 -> index.liveSegments(file).forEach(segment -> index.delete(segment.path()));
      default -> {
        String name = "f" + number.incrementAndGet();
        MergedFile made = new MergedFile(name, MergedFile.Writer.NOBODY, new Clocks.Moment(0, 0));
        index.addIfAbsent(made);
        List<Entry> entries = new ArrayList<>();
        for (int i = 0; i < 2_000; i++) {
          String path = "0/" + random.nextInt(10) + "/SSTs/" + random.nextInt(300) + ".sst";
          long stamp = 1 + random.nextInt(20);
          entries.add(
              random.nextInt(3) == 0
                  ? Entry.tombstone(path, 0, stamp, 1)
                  : new Entry(Entry.PUT, Entry.TYPE_SST, random.nextInt(3), 0, stamp, 1, i, 10, 0, path));
        }
        index.apply(made, entries);
        made.read(1_000_000, 1, true, 1, 1, 1, 0);
      }
    }
  }

  private static List<String> contradictions(Index index) {
    List<String> found = new ArrayList<>();
    long live = 0;
    long garbage = 0;
    for (MergedFile file : index.files()) {
      List<Segment> segments = index.liveSegments(file);
      if (segments.size() != index.referenceCount(file)) {
        found.add(file + " has " + segments.size() + " live segments and counts " + index.referenceCount(file));
      }
      if (segments.stream().distinct().count() != segments.size()) {
        found.add(file + " has a live segment twice");
      }
      if (!segments.stream().allMatch(segment -> segment.equals(index.find(segment.path())))) {
        found.add("something lives in " + file + " that does not live at its path");
      }
      live += segments.size();
      garbage += file.size() - segments.stream().mapToLong(Segment::lengthWithEntries).sum();
    }
    List<Long> counted =
        List.of(
            (long) index.totals().liveSegments(),
            index.totals().liveBytes(),
            index.garbage(),
            (long) index.listRecursively("").size());
    List<Long> expected = List.of(live, 10 * live, garbage, live);
    if (!counted.equals(expected)) {
      found.add("it counts " + counted + " and has " + expected);
    }
    index.files().forEach(index::remove);
    if (!index.partitions().isEmpty() || !index.totals().equals(Totals.NOTHING)) {
      found.add("without files it still has " + index.partitions() + " and " + index.totals());
    }
    return found;
  }

  private static Map<String, Object> by(String lines, Function<String, Object> said) {
    Map<String, Object> found = new LinkedHashMap<>();
    lines.lines().forEach(line -> found.put(line, said.apply(line)));
    return found;
  }

  private static List<String> formatAll(List<Segment> segments) {
    return segments.stream().map(IndexView::format).collect(Collectors.toList());
  }

  private static String format(Segment segment) {
    return segment.file().name() + " " + format(segment.entry());
  }

  private static String format(Entry e) {
    return e.kind()
        + " "
        + e.type()
        + " "
        + e.generation()
        + " "
        + e.crc32c()
        + " "
        + e.stamp()
        + " "
        + e.writer()
        + " "
        + e.offset()
        + " "
        + e.length()
        + " "
        + e.fileRef()
        + " "
        + e.path();
  }

  private static List<Entry> parse(String entries) {
    return entries
        .lines()
        .map(
            line -> {
              String[] part = line.split(" ");
              return new Entry(
                  Integer.parseInt(part[0]),
                  Integer.parseInt(part[1]),
                  Integer.parseInt(part[2]),
                  Integer.parseInt(part[3]),
                  Long.parseLong(part[4]),
                  Long.parseLong(part[5]),
                  Long.parseLong(part[6]),
                  Long.parseLong(part[7]),
                  Integer.parseInt(part[8]),
                  part[9]);
            })
        .toList();
  }
}
