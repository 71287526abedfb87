package io.pyspark.statestore.sink.join;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;

/**
 * What became of the files of one bin: each of them was either joined or left as it is.
 *
 * @param sources what was found in the files that were joined
 * @param made the new files, which hold what these held
 * @param left files that could not be joined without loss
 */
public record Joined(List<Part> sources, List<Part> made, List<Left> left) implements Serializable {

  /**
   * What a file holds.
   *
   * @param file as it was planned or, of a new file, as its file system says
   * @param count of its rows, or of the lines of a text
   * @param checksum over its rows or lines, in any order
   */
  public record Part(FileStatus file, long count, long checksum) implements Serializable {
    public Part {
      file = plain(file);
    }
  }

  /**
   * A file that stays as it is.
   *
   * @param why for users
   */
  public record Left(FileStatus file, String why) implements Serializable {
    public Left {
      file = plain(file);
    }
  }

  /**
   * File systems have classes of their own, from jars that a session was given, which cannot be read from bytes here.
   */
  private static FileStatus plain(FileStatus file) {
    return new FileStatus(
        file.getLen(), false, file.getReplication(), file.getBlockSize(), file.getModificationTime(), file.getPath());
  }

  /** What the innermost cause of a failure says, as {@link Left#why}. */
  public static String reason(Throwable thrown) {
    Throwable cause = thrown;
    while (cause.getCause() != null) {
      cause = cause.getCause();
    }
    String text = cause.getMessage() == null ? cause.getClass().getName() : cause.getMessage();
    return text.strip().lines().findFirst().orElse(cause.getClass().getName());
  }

  /** None of them was joined. */
  public static Joined none(List<FileStatus> files, String why) {
    return new Joined(List.of(), List.of(), files.stream().map(file -> new Left(file, why)).toList());
  }

  /** The same with the new files as they are in their places, by their names. */
  public Joined at(Map<String, FileStatus> places) {
    List<Part> placed =
        made.stream()
            .map(part -> new Part(places.get(part.file().getPath().getName()), part.count(), part.checksum()))
            .toList();
    return new Joined(sources, placed, left);
  }

  /**
   * As bytes, for the way from a task to the driver: Spark would use the serializer of the user's choice, and that may
   * know no classes but those that were registered with it.
   */
  byte[] toBytes() throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(this);
    }
    return bytes.toByteArray();
  }

  static Joined fromBytes(byte[] bytes) throws IOException {
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
      return (Joined) in.readObject();
    } catch (ClassNotFoundException e) {
      throw new IOException("A task answered with a class that is not known here: " + e.getMessage(), e);
    }
  }
}
