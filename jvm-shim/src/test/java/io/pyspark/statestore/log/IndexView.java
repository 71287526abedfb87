package io.pyspark.statestore.log;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.format.Entry;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
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
    index.proveTombstones(refresh, file -> true, since -> noRelocation);
  }

  public void forget(String partition) {
    index.forgetPartition(partition);
  }

  /** Returns the paths that walks over a file's entries see, or nothing where its lists are longer. */
  public String visited(String name) {
    List<String> found = new ArrayList<>();
    MergedFile file = index.file(name);
    file.segments.walk(index, file, () -> true, (store, path) -> found.add("1 " + path));
    file.tombstones.walk(index, file, () -> true, (store, path) -> found.add("2 " + path));
    return found.size() < file.segments.size() + file.tombstones.size() ? "" : String.join("\n", found);
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
      TombstoneUse use = index.useOfTombstones(file);
      files.put(file.name(), Map.of(
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
      index.entries(partition).forEach((file, all) ->
          entries.put(file.name(), all.stream().map(IndexView::format).toList()));
      partitions.put(partition, Map.of("revision", index.revision(partition), "entries", entries));
    }
    said.put("partitions", partitions);
    return JSON.writeValueAsString(said);
  }

  /** The number of a partition. */
  public long revision(String partition) {
    return index.revision(partition);
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
    return e.kind() + " " + e.type() + " " + e.generation() + " " + e.crc32c() + " " + e.stamp() + " " + e.writer()
        + " " + e.offset() + " " + e.length() + " " + e.fileRef() + " " + e.path();
  }

  private static List<Entry> parse(String entries) {
    return entries.lines().map(line -> {
      String[] part = line.split(" ");
      return new Entry(
          Integer.parseInt(part[0]), Integer.parseInt(part[1]), Integer.parseInt(part[2]), Integer.parseInt(part[3]),
          Long.parseLong(part[4]), Long.parseLong(part[5]), Long.parseLong(part[6]), Long.parseLong(part[7]),
          Integer.parseInt(part[8]), part[9]);
    }).toList();
  }
}
