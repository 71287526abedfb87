package io.pyspark.statestore.sink.join;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Copies files, in one Spark job with a task for each: files of a whole partition value may be large, and many. Tasks
 * are given texts and give back texts, which every serializer knows.
 */
public final class FileCopies implements Function<String, String> {
  private static final long serialVersionUID = 1L;

  /** Between fields: paths are URL-encoded, so they have none. */
  private static final String END = " ";

  private final Broadcast<SerializableConfiguration> conf;
  private final boolean ownNames;

  private FileCopies(Broadcast<SerializableConfiguration> conf, boolean ownNames) {
    this.conf = conf;
    this.ownNames = ownNames;
  }

  /**
   * Copies each of some files.
   *
   * @param to where each copy is to be
   * @param ownNames whether each attempt of a task writes to a name of its own beside that, so that attempts never
   *     meet; otherwise a file has to appear whole, as on object stores
   * @return the copies, in the same order
   */
  public static List<FileStatus> copy(List<FileStatus> files, List<Path> to, boolean ownNames, Configuration conf)
      throws IOException {
    if (files.isEmpty()) {
      return List.of();
    }
    List<String> works = new ArrayList<>();
    for (int at = 0; at < files.size(); at++) {
      works.add(text(files.get(at).getPath()) + END + text(to.get(at)));
    }
    List<String> done = Jobs.run(SparkSession.active(), works, conf, broadcast -> new FileCopies(broadcast, ownNames));
    List<FileStatus> copies = new ArrayList<>();
    for (int at = 0; at < done.size(); at++) {
      copies.add(checked(done.get(at), files.get(at)));
    }
    return copies;
  }

  @Override
  public String call(String work) throws IOException {
    String[] paths = work.split(END);
    Path from = path(paths[0]);
    Path to = path(paths[1]);
    if (ownNames) {
      String name = String.format("%s.%016x", to.getName(), ThreadLocalRandom.current().nextLong());
      to = new Path(to.getParent(), name);
    }
    Configuration own = conf.value().value();
    FileSystem fs = from.getFileSystem(own);
    FileUtil.copy(fs, from, fs, to, false, true, own);
    FileStatus made = fs.getFileStatus(to);
    return String.join(
        END,
        text(to),
        Long.toString(made.getLen()),
        Integer.toString(made.getReplication()),
        Long.toString(made.getBlockSize()),
        Long.toString(made.getModificationTime()));
  }

  /** The copy has to be as long as the manifest says that the file is. */
  private static FileStatus checked(String done, FileStatus file) throws IOException {
    String[] fields = done.split(END);
    Path copy = path(fields[0]);
    long length = Long.parseLong(fields[1]);
    if (length != file.getLen()) {
      throw new IOException(copy + " has " + length + " bytes, and is a copy of " + file.getLen());
    }
    return new FileStatus(
        length, false, Integer.parseInt(fields[2]), Long.parseLong(fields[3]), Long.parseLong(fields[4]), copy);
  }

  private static String text(Path path) {
    return SparkPath.fromPath(path).urlEncoded();
  }

  private static Path path(String text) {
    return SparkPath.fromUrlString(text).toPath();
  }
}
