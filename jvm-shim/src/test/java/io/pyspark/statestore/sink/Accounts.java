package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.sink.join.Joined;
import io.pyspark.statestore.sink.join.Joined.Part;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** Asks {@link Account} about a join of two files into one, of which something is wrong. */
public final class Accounts {
  private Accounts() {}

  /** Returns what it says; empty where it is content. */
  public static String of(String wrong) {
    FileStatus one = file("one", 10);
    FileStatus two = file("two", 20);
    FileStatus made = file("made", 25);
    List<Part> sources =
        switch (wrong) {
          case "a source is missing" -> List.of(new Part(one, 1, 5));
          case "another source" -> List.of(new Part(one, 1, 5), new Part(file("three", 20), 2, 7));
          case "a source of another size" -> List.of(new Part(one, 1, 5), new Part(file("two", 21), 2, 7));
          case "a source came twice" -> List.of(new Part(one, 1, 5), new Part(one, 1, 5), new Part(two, 2, 7));
          default -> List.of(new Part(one, 1, 5), new Part(two, 2, 7));
        };
    Part of =
        switch (wrong) {
          case "a row is missing" -> new Part(made, 2, 12);
          case "another row" -> new Part(made, 3, 13);
          default -> new Part(made, 3, 12);
        };
    List<Part> all = wrong.equals("nothing was made") ? List.of() : List.of(of);
    Map<String, FileStatus> placed =
        switch (wrong) {
          case "it is not there" -> Map.of();
          case "it is cut" -> Map.of("made", file("made", 24));
          default -> Map.of("made", made);
        };
    List<Joined> joined = List.of(new Joined(sources, all, List.of()));
    try {
      Account.check(List.of(List.of(one, two)), wrong.equals("a bin is missing") ? List.of() : joined, placed);
      return "";
    } catch (StateStoreFilesException e) {
      return e.getMessage();
    }
  }

  private static FileStatus file(String name, long length) {
    return new FileStatus(length, false, 1, 1 << 20, 0, new Path("file:/sink/" + name));
  }
}
