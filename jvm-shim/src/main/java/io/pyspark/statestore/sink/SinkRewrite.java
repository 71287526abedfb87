package io.pyspark.statestore.sink;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.files.ObjectStores;
import io.pyspark.statestore.sink.Bins.Bin;
import io.pyspark.statestore.sink.join.Compaction;
import io.pyspark.statestore.sink.join.FoundFormat;
import io.pyspark.statestore.sink.join.Joined;
import io.pyspark.statestore.sink.join.WrittenFormat;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.SparkSession;

/**
 * Joins files that a sink has listed long ago, and puts a new list in the place of an old one: what {@code
 * Sink.compact} of the Python package needs of Spark.
 *
 * <p>Files are given as lines of a path and a size in bytes. Paths are URL-encoded, as in the sink's list, so they have
 * neither spaces nor ends of lines.
 */
public final class SinkRewrite {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** When so many bins are not understood, and none is, the format is wrong. */
  private static final int MOST_IN_VAIN = 4;

  private SinkRewrite() {}

  /**
   * Which files are to be joined.
   *
   * @param target bytes that a file is to have; a text, as all that comes from Python
   * @return a line for each new file: the numbers of the files that it is made of
   */
  public static String plan(String sink, String files, String target) {
    List<FileStatus> given = files.lines().map(SinkRewrite::parse).toList();
    Map<Path, Integer> numbers = new HashMap<>();
    given.forEach(file -> numbers.put(file.getPath(), numbers.size()));
    return Bins.of(new Path(sink), given, Long.parseLong(target)).stream()
        .filter(bin -> !bin.isAsItIs())
        .map(bin -> bin.files().stream().map(f -> numbers.get(f.getPath()).toString()).collect(Collectors.joining(" ")))
        .collect(Collectors.joining("\n"));
  }

  /**
   * Joins the files of bins as they were planned. The new files are in their final places then, and no list names them.
   *
   * @param format as for {@code writeStream.format}
   * @param options of the query's writer
   * @param plan a line for each file: the number of its bin, its path and its size; the bins one after the other
   * @param attempt sixteen digits, which the names of all new files have in common
   * @return JSON: of each bin {@code made}, its new files, and {@code left}, which of its files were not joined, by
   *     their places in the bin, and why
   */
  public static String join(
      SparkSession session, String sink, String format, Map<String, String> options, String plan, String attempt)
      throws IOException {
    List<Bin> bins = bins(new Path(sink), plan);
    Map<Bin, Joined> joined = new HashMap<>();
    for (Map.Entry<WrittenFormat, List<Bin>> group : byForm(session, format, options, bins, joined).entrySet()) {
      Compaction compaction = compaction(group.getKey(), session, options, attempt);
      String whyNot = compaction.whyNot();
      if (whyNot == null) {
        joined.putAll(place(session, sink, options, group.getValue(), compaction).joined());
      } else {
        group.getValue().forEach(bin -> joined.put(bin, Joined.none(bin.files(), whyNot)));
      }
    }
    ArrayNode all = JSON.createArrayNode();
    bins.forEach(bin -> all.add(node(bin, joined.get(bin))));
    return JSON.writeValueAsString(all);
  }

  /**
   * Bins by what their files are. Where no columns go with all files, those of each bin are asked for by themselves.
   *
   * @param left takes the bins that are not understood
   */
  private static Map<WrittenFormat, List<Bin>> byForm(
      SparkSession session, String format, Map<String, String> options, List<Bin> bins, Map<Bin, Joined> left)
      throws IOException {
    SinkScala.check();
    SparkSession.setActiveSession(session);
    List<FileStatus> all = bins.stream().flatMap(bin -> bin.files().stream()).toList();
    StateStoreFilesException why = null;
    try {
      WrittenFormat written = FoundFormat.of(session, format, options, all);
      if (written.namesAlike() == null) {
        return Map.of(written, bins);
      }
    } catch (StateStoreFilesException e) {
      why = e;
    }
    Map<String, WrittenFormat> forms = new HashMap<>();
    Map<WrittenFormat, List<Bin>> groups = new LinkedHashMap<>();
    for (Bin bin : bins) {
      try {
        WrittenFormat written = FoundFormat.of(session, format, options, bin.files());
        WrittenFormat known = forms.computeIfAbsent(written.form(), form -> written);
        groups.computeIfAbsent(known, form -> new ArrayList<>()).add(bin);
      } catch (StateStoreFilesException e) {
        left.put(bin, Joined.none(bin.files(), Joined.reason(e)));
        if (why != null && groups.isEmpty() && left.size() == MOST_IN_VAIN) {
          throw why;
        }
      }
    }
    if (why != null && groups.isEmpty()) {
      throw why;
    }
    return groups;
  }

  /**
   * Brings the rows that wait to their final places, joined to as few files as {@link Bins} says. They stay where they
   * wait, too, and no list names the new files.
   *
   * @param files a line for each: its path and its size
   * @param attempt as for {@link #join}
   * @param schema of the files as JSON, as their manifest says it: Spark looks into no file where they wait
   * @return a line for each new file: its path, its size, its replication and the size of its blocks
   */
  public static String publish(
      SparkSession session,
      String sink,
      String format,
      Map<String, String> options,
      String files,
      String target,
      String schema,
      String attempt)
      throws IOException {
    SinkScala.check();
    SparkSession.setActiveSession(session);
    List<FileStatus> given = files.lines().map(SinkRewrite::parse).toList();
    Path former = new Path(sink, SinkPlaces.FORMER_WAITING);
    boolean isFormer = given.stream().allMatch(file -> SinkPaths.isBelow(former, file.getPath()));
    Path root = isFormer ? former : new Path(sink, SinkPlaces.WAITING);
    List<Bin> bins = Bins.of(root, given, Long.parseLong(target));
    WrittenFormat written = FoundFormat.of(session, format, options, schema);
    List<FileStatus> made =
        place(session, sink, options, bins, compaction(written, session, options, attempt)).published();
    return made.stream().map(SinkRewrite::line).collect(Collectors.joining("\n"));
  }

  private static Compaction compaction(
      WrittenFormat written, SparkSession session, Map<String, String> options, String attempt) {
    return new Compaction(written, conf(session, options), Long.parseUnsignedLong(attempt, 16));
  }

  private static Placement.Placed place(
      SparkSession session, String sink, Map<String, String> options, List<Bin> bins, Compaction compaction)
      throws IOException {
    Staging staging = new Staging(sink, Staging.newDirectory(sink, "compact"), conf(session, options));
    List<Path> inVain = new ArrayList<>();
    try {
      staging.begin();
      Placement.Placed placed = new Placement(staging, compaction, inVain).place(bins);
      inVain.clear();
      return placed;
    } finally {
      staging.delete(inVain);
    }
  }

  private static List<Bin> bins(Path sink, String plan) {
    Map<String, List<FileStatus>> files = new LinkedHashMap<>();
    for (String line : plan.lines().toList()) {
      int space = line.indexOf(' ');
      files
          .computeIfAbsent(line.substring(0, space), number -> new ArrayList<>())
          .add(parse(line.substring(space + 1)));
    }
    return files.values().stream().map(own -> new Bin(Bins.directory(sink, own.get(0).getPath()), own, false)).toList();
  }

  private static ObjectNode node(Bin bin, Joined joined) {
    ObjectNode node = JSON.createObjectNode();
    ArrayNode made = node.putArray("made");
    joined
        .made()
        .forEach(
            part ->
                made.addObject()
                    .put("path", SparkPath.fromPath(part.file().getPath()).urlEncoded())
                    .put("size", part.file().getLen())
                    .put("replication", part.file().getReplication())
                    .put("block_size", part.file().getBlockSize()));
    ArrayNode left = node.putArray("left");
    joined.left().forEach(one -> left.addObject().put("file", bin.files().indexOf(one.file())).put("why", one.why()));
    return node;
  }

  private static String line(FileStatus file) {
    return String.join(
        " ",
        SparkPath.fromPath(file.getPath()).urlEncoded(),
        Long.toString(file.getLen()),
        Integer.toString(file.getReplication()),
        Long.toString(file.getBlockSize()));
  }

  /** Puts a new list, or a part of it, in the place of an old one: a reader sees the one or the other. */
  public static void replaceList(SparkSession session, String sink, String name, String text) throws IOException {
    Path list = new Path(new Path(sink, SinkPlaces.LIST), name);
    Configuration conf = conf(session, Map.of());
    FileSystem fs = list.getFileSystem(conf);
    if (ObjectStores.isOne(fs)) {
      write(fs, list, text);
      return;
    }
    if (fs.getUri().getScheme().equals("file")) {
      replaceOnDisk(java.nio.file.Path.of(fs.makeQualified(list).toUri().getPath()), text);
      return;
    }
    Path whole = new Path(list.getParent(), "." + name + "." + UUID.randomUUID() + ".tmp");
    boolean done = false;
    try {
      write(fs, whole, text);
      rename(fs, whole, list, conf);
      done = true;
    } finally {
      if (!done) {
        fs.delete(whole, false);
      }
    }
  }

  /**
   * Hadoop's rename deletes what it replaces first on a local disk, and its checksum file is of the old text for a
   * while. A file without one is read unchecked, so that goes first.
   */
  private static void replaceOnDisk(java.nio.file.Path list, String text) throws IOException {
    String name = list.getFileName().toString();
    java.nio.file.Path whole = list.resolveSibling("." + name + "." + UUID.randomUUID() + ".tmp");
    try {
      try (FileChannel out = FileChannel.open(whole, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
        ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        while (bytes.hasRemaining()) {
          out.write(bytes);
        }
        out.force(true);
      }
      Files.deleteIfExists(list.resolveSibling("." + name + ".crc"));
      Files.move(whole, list, StandardCopyOption.ATOMIC_MOVE);
    } finally {
      Files.deleteIfExists(whole);
    }
  }

  private static void write(FileSystem fs, Path path, String text) throws IOException {
    try (OutputStream out = fs.create(path, true)) {
      out.write(text.getBytes(StandardCharsets.UTF_8));
    }
  }

  private static void rename(FileSystem fs, Path from, Path to, Configuration conf) throws IOException {
    FileContext context;
    try {
      context = FileContext.getFileContext(fs.makeQualified(to).toUri(), conf);
    } catch (UnsupportedFileSystemException e) {
      // As Spark does where a file system has no other way: local ones replace what is there.
      if (!fs.rename(from, to)) {
        throw new IOException(from + " could not be renamed to " + to);
      }
      return;
    }
    context.rename(from, to, Rename.OVERWRITE);
  }

  private static FileStatus parse(String line) {
    int space = line.indexOf(' ');
    Path path = SparkPath.fromUrlString(line.substring(0, space)).toPath();
    return new FileStatus(Long.parseLong(line.substring(space + 1)), false, 1, 0, 0, path);
  }

  private static Configuration conf(SparkSession session, Map<String, String> options) {
    try {
      Object state = RunningSink.call(session, "sessionState");
      Configuration conf = (Configuration) RunningSink.call(state, "newHadoopConf");
      options.forEach(conf::set);
      return conf;
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("This Spark's session is not as expected", e);
    }
  }
}
