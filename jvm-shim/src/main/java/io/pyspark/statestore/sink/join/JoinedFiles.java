package io.pyspark.statestore.sink.join;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.util.SerializableConfiguration;

/**
 * What an executor does with files to join: it writes new files that hold what they hold, in their order, and says what
 * it found in both. What cannot be joined without loss is left, with the reason. Each attempt of a task writes to names
 * of its own, so attempts never meet.
 *
 * <p>A task is given a number only, and it answers with bytes: the rest travels in this function, for which Spark uses
 * Java's serializer whatever {@code spark.serializer} is.
 */
final class JoinedFiles implements org.apache.spark.api.java.function.Function<Integer, byte[]> {
  private static final long serialVersionUID = 1L;

  private final Broadcast<SerializableConfiguration> conf;
  private final long attempt;
  private final Copy copy;
  private final List<Join> joins;

  /** How to copy, which depends on the format. */
  interface Copy extends Serializable {
    /**
     * Writes what is in the files to new files, and says what is in both.
     *
     * @param next the path of a new file with an ending; another one each time
     * @param number of the task
     */
    Joined copy(List<FileStatus> files, Function<String, Path> next, int number, Configuration conf) throws IOException;
  }

  /**
   * @param attempt at the batch: the same in the names of all its files
   */
  JoinedFiles(Broadcast<SerializableConfiguration> conf, long attempt, Copy copy, List<Join> joins) {
    this.conf = conf;
    this.attempt = attempt;
    this.copy = copy;
    this.joins = joins;
  }

  @Override
  public byte[] call(Integer number) throws IOException {
    Join join = joins.get(number);
    Configuration own = new Configuration(conf.value().value());
    List<Path> named = new ArrayList<>();
    Set<Path> kept = new HashSet<>();
    try {
      Joined joined =
          copy.copy(
              join.files(),
              ending -> {
                named.add(new Path(join.directory(), PartNames.newName(attempt, number, ending)));
                return named.get(named.size() - 1);
              },
              number,
              own);
      byte[] answer = joined.toBytes();
      joined.made().forEach(made -> kept.add(made.file().getPath()));
      return answer;
    } catch (RuntimeException e) {
      if (isOfTheTask(e)) {
        throw e;
      }
      // Stock Spark would list the files, whatever this format's reader or writer has against them.
      return Joined.none(join.files(), Joined.reason(e)).toBytes();
    } finally {
      for (Path file : named) {
        if (kept.stream().noneMatch(path -> path.getName().equals(file.getName()))) {
          join.directory().getFileSystem(own).delete(file, false);
        }
      }
    }
  }

  /** Whether the task was killed, or its storage failed: neither says anything about the files. */
  private static boolean isOfTheTask(Throwable thrown) {
    TaskContext context = TaskContext.get();
    if (Thread.currentThread().isInterrupted() || context != null && context.isInterrupted()) {
      return true;
    }
    for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
      if (cause instanceof IOException || cause instanceof InterruptedException || cause instanceof Error) {
        return true;
      }
    }
    return false;
  }
}
