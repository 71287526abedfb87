package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.log.ObjectStores;
import io.pyspark.statestore.sink.Bins.Bin;
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
 * Joins files that a sink has listed long ago, and puts a new list in the place of an old one: what {@code Sink.compact}
 * of the Python package needs of Spark.
 *
 * <p>Files are given as lines of a path and a size in bytes. Paths are URL-encoded, as in the sink's list, so they have
 * neither spaces nor ends of lines.
 */
public final class SinkRewrite {
  private SinkRewrite() {}

  /**
   * Which files are to be joined.
   *
   * @param target bytes that a file is to have; a text, as all that comes from Python
   * @return a line for each new file: the numbers of the files that it is made of
   */
  public static String plan(String sink, String files, String target) {
    List<FileStatus> given = parse(files);
    Map<Path, Integer> numbers = new HashMap<>();
    given.forEach(file -> numbers.put(file.getPath(), numbers.size()));
    return bins(sink, given, target).stream()
        .map(bin -> bin.files().stream().map(f -> numbers.get(f.getPath()).toString()).collect(Collectors.joining(" ")))
        .collect(Collectors.joining("\n"));
  }

  /**
   * Joins the files that {@link #plan} says. The new files are in their final places then, and no list names them.
   *
   * @param format as for {@code writeStream.format}
   * @param options of the query's writer
   * @return a line for each new file: its path, its size, its replication and the size of its blocks, and the number of
   *     the line of the plan that it comes from
   */
  public static String join(
      SparkSession session, String sink, String format, Map<String, String> options, String files, String target)
      throws IOException {
    List<FileStatus> given = parse(files);
    WrittenFormat written = WrittenFormat.of(session, format, FileFormats.options(options), given);
    return place(session, sink, written, options, bins(sink, given, target));
  }

  /**
   * Brings the rows that wait to their final places, joined to as few files as {@link Bins} says. They stay where they
   * wait, too, and no list names the new files.
   *
   * @param schema of the files as JSON, as their manifest says it: Spark looks into no file where they wait
   * @return as {@link #join}
   */
  public static String publish(
      SparkSession session, String sink, String format, Map<String, String> options, String files, String target,
      String schema)
      throws IOException {
    List<FileStatus> given = parse(files);
    boolean isFormer = files.contains("/" + SinkPlaces.FORMER_WAITING + "/") && !files.contains(SinkPlaces.WAITING);
    String root = isFormer ? SinkPlaces.FORMER_WAITING : SinkPlaces.WAITING;
    List<Bin> bins = Bins.of(new Path(sink, root), given, Long.parseLong(target));
    WrittenFormat written = WrittenFormat.of(session, format, FileFormats.options(options), schema);
    return place(session, sink, written, options, bins);
  }

  private static String place(
      SparkSession session, String sink, WrittenFormat written, Map<String, String> options, List<Bin> bins)
      throws IOException {
    SinkScala.check();
    SparkSession.setActiveSession(session);
    Configuration conf = conf(session, options);
    Compaction compaction = new Compaction(written, conf);
    if (!compaction.canJoin()) {
      throw new StateStoreFilesException(
          Id.PSS_SINK_COMPACTION_FAILED, "The files of " + sink + " cannot be joined: they are text in another charset"
              + " than UTF-8, ASCII or ISO-8859-1, or maxRecordsPerFile limits them. Nothing was changed.");
    }
    Staging staging = new Staging(sink, Staging.newDirectory(sink, "compact"), conf);
    List<Path> inVain = new ArrayList<>();
    try {
      List<FileStatus> made = staging.place(bins, compaction, inVain).published();
      inVain.clear();
      return made.stream().map(SinkRewrite::line).collect(Collectors.joining("\n"));
    } finally {
      staging.delete(inVain);
    }
  }

  private static String line(FileStatus file) {
    return String.join(" ", SparkPath.fromPath(file.getPath()).urlEncoded(), Long.toString(file.getLen()),
        Integer.toString(file.getReplication()), Long.toString(file.getBlockSize()),
        Integer.toString(JoinedFiles.number(file.getPath().getName())));
  }

  /** Puts a new list, or a part of it, in the place of an old one: a reader sees the one or the other. */
  public static void replaceList(SparkSession session, String sink, String name, String text) throws IOException {
    Path list = new Path(new Path(sink, "_spark_metadata"), name);
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

  private static List<Bin> bins(String sink, List<FileStatus> files, String target) {
    return Bins.of(new Path(sink), files, Long.parseLong(target)).stream().filter(bin -> !bin.isAsItIs()).toList();
  }

  private static List<FileStatus> parse(String files) {
    List<FileStatus> parsed = new ArrayList<>();
    for (String line : files.lines().toList()) {
      int space = line.indexOf(' ');
      Path path = SparkPath.fromUrlString(line.substring(0, space)).toPath();
      parsed.add(new FileStatus(Long.parseLong(line.substring(space + 1)), false, 1, 0, 0, path));
    }
    return parsed;
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
