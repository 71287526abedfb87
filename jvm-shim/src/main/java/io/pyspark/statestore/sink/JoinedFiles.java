package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.util.SerializableConfiguration;

/**
 * What an executor does with files to join: it writes a new file that holds what they hold, in their order, and makes
 * sure that it does. Each attempt of a task writes to a name of its own, so attempts never meet.
 */
final class JoinedFiles implements Function<JoinedFiles.Join, List<FileStatus>> {
  /** A name of Spark's ends with this after its UUID, such as {@code -c000.snappy.parquet}. */
  private static final int UUID_LENGTH = 36;

  private final Broadcast<SerializableConfiguration> conf;
  private final long attempt;
  private final Copy copy;

  /**
   * Files that become one.
   *
   * @param directory of the new file
   * @param files at least one, in order
   */
  record Join(Path directory, List<FileStatus> files) implements Serializable {}

  /** How to copy, which depends on the format. */
  interface Copy extends Serializable {
    /**
     * Writes what is in the files to a new file, and fails where that is not what it holds then.
     *
     * @param next the path of the new file; of another one each time, for writers that end a file at some length
     * @param number of the task
     * @return the new files
     */
    List<FileStatus> copy(List<FileStatus> files, Supplier<Path> next, int number, Configuration conf)
        throws IOException;
  }

  /**
   * @param attempt at the batch: the same in the names of all its files
   */
  JoinedFiles(Broadcast<SerializableConfiguration> conf, long attempt, Copy copy) {
    this.conf = conf;
    this.attempt = attempt;
    this.copy = copy;
  }

  @Override
  public List<FileStatus> call(Join join) throws IOException {
    int number = TaskContext.getPartitionId();
    Path directory = join.directory();
    String first = join.files().get(0).getPath().getName();
    Configuration own = new Configuration(conf.value().value());
    List<Path> named = new ArrayList<>();
    boolean done = false;
    try {
      List<FileStatus> made = copy.copy(join.files(), () -> {
        named.add(new Path(directory, newName(attempt, number, first)));
        return named.get(named.size() - 1);
      }, number, own);
      done = true;
      return made;
    } finally {
      if (!done) {
        for (Path file : named) {
          directory.getFileSystem(own).delete(file, false);
        }
      }
    }
  }

  /**
   * A name that no other file has, as Spark names files.
   *
   * @param like has the ending that it gets
   */
  static String newName(long attempt, int number, String like) {
    String ending = like.substring(like.indexOf('-', "part-".length()) + 1 + UUID_LENGTH);
    UUID unique = new UUID(attempt, ThreadLocalRandom.current().nextLong());
    return String.format(Locale.ROOT, "part-%05d-%s%s", number, unique, ending);
  }

  /** By which of the joins a new file was made, by its name. */
  static int number(String name) {
    int begin = "part-".length();
    return Integer.parseInt(name.substring(begin, name.indexOf('-', begin)));
  }

  /** Whether a file is one of an attempt's, by its name. */
  static boolean isOf(long attempt, String name) {
    String id = new UUID(attempt, 0).toString().substring(0, UUID_LENGTH / 2);
    return name.startsWith(id, name.indexOf('-', "part-".length()) + 1);
  }

  /** What to throw where a new file does not hold what it should. */
  static StateStoreFilesException differs(Path file, long has, long expected, String what) {
    return new StateStoreFilesException(
        Id.PSS_SINK_COMPACTION_FAILED, file + " has " + has + " " + what + " and was written with " + expected
            + ". Nothing of the batch was published. Restart the query; if it happens again, unset"
            + " spark.sql.streaming.commitProtocolClass and report it.");
  }
}
