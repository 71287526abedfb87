package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.sink.join.Joined;
import io.pyspark.statestore.sink.join.Joined.Left;
import io.pyspark.statestore.sink.join.Joined.Part;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * The account of a join: nothing that was made of files may take their place before it is clear where each of them
 * went. A batch, a compaction and a publication all ask here, after the new files came to their places and before any
 * list names them.
 *
 * <p>Of each bin:
 *
 * <ul>
 *   <li>every file that was planned was joined or left, once, and nothing else was;
 *   <li>the rows of the files that were joined, counted and summed up as they were read, are the rows of the new files,
 *       counted and summed up as these were read again;
 *   <li>each new file is in its place with its size, and no two bins have the same one.
 * </ul>
 */
final class Account {
  private Account() {}

  /**
   * Checks it.
   *
   * @param planned the files of each bin
   * @param joined what became of them
   * @param placed what was found of the new files where readers are to find them, by name
   * @throws StateStoreFilesException PSS_SINK_COMPACTION_FAILED
   */
  static void check(List<List<FileStatus>> planned, List<Joined> joined, Map<String, FileStatus> placed)
      throws StateStoreFilesException {
    if (planned.size() != joined.size()) {
      throw wrong(planned.size() + " bins were planned and " + joined.size() + " came back");
    }
    Map<String, Integer> makers = new HashMap<>();
    for (int bin = 0; bin < planned.size(); bin++) {
      Joined found = joined.get(bin);
      checkSources(planned.get(bin), found);
      if (sum(found.sources()) != sum(found.made()) || count(found.sources()) != count(found.made())) {
        throw wrong(
            "the files of "
                + planned.get(bin).get(0).getPath().getParent()
                + " had "
                + count(found.sources())
                + " rows, and what was made of them has "
                + count(found.made())
                + ", or other ones");
      }
      for (Part made : found.made()) {
        Path path = made.file().getPath();
        FileStatus there = placed.get(path.getName());
        if (there == null || there.getLen() != made.file().getLen()) {
          throw wrong(
              path.getName()
                  + " was made with "
                  + made.file().getLen()
                  + " bytes, and "
                  + (there == null ? "is not there" : "has " + there.getLen()));
        }
        if (makers.put(path.getName(), bin) != null) {
          throw wrong(path.getName() + " was made twice");
        }
      }
    }
  }

  private static void checkSources(List<FileStatus> planned, Joined found) throws StateStoreFilesException {
    Map<Path, Long> open = new HashMap<>();
    for (FileStatus file : planned) {
      if (open.put(file.getPath(), file.getLen()) != null) {
        throw wrong(file.getPath() + " was planned twice");
      }
    }
    for (Part source : found.sources()) {
      take(open, source.file());
    }
    for (Left left : found.left()) {
      take(open, left.file());
    }
    if (!open.isEmpty()) {
      throw wrong("nobody says what became of " + open.keySet().iterator().next());
    }
    if (found.sources().isEmpty() != found.made().isEmpty()) {
      throw wrong("files were made of nothing, or nothing of files, in " + planned.get(0).getPath().getParent());
    }
  }

  private static void take(Map<Path, Long> open, FileStatus file) throws StateStoreFilesException {
    Long planned = open.remove(file.getPath());
    if (planned == null || planned != file.getLen()) {
      throw wrong(file.getPath() + " was not planned, or came twice");
    }
  }

  private static long count(List<Part> parts) {
    return parts.stream().mapToLong(Part::count).sum();
  }

  private static long sum(List<Part> parts) {
    return parts.stream().mapToLong(Part::checksum).sum();
  }

  private static StateStoreFilesException wrong(String what) {
    return new StateStoreFilesException(
        Id.PSS_SINK_COMPACTION_FAILED,
        "Joining files went wrong: "
            + what
            + ". No list names what was made. Try again;"
            + " if it happens again, unset spark.sql.streaming.commitProtocolClass and report it.");
  }
}
