package io.pyspark.statestore.sink.join;

import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;

/**
 * The names of a sink's files, which are those that Spark gives: {@code part-}, the number of the task, a UUID and an
 * ending. In the name of a file that was made of others, the UUID begins with the attempt that made it.
 */
public final class PartNames {
  private static final String BEGINNING = "part-";

  /** Of a UUID as a text. */
  private static final int UUID_LENGTH = 36;

  private PartNames() {}

  /**
   * A name that no other file has, as Spark names files.
   *
   * @param attempt that makes the file
   * @param number of the task
   * @param ending after the UUID, such as {@code -c000.snappy.parquet}
   */
  static String newName(long attempt, int number, String ending) {
    UUID unique = new UUID(attempt, ThreadLocalRandom.current().nextLong());
    return String.format(Locale.ROOT, "%s%05d-%s%s", BEGINNING, number, unique, ending);
  }

  /** What comes after the UUID in the name of a file of Spark's; of other names all after the first point. */
  public static String ending(String name) {
    int begin = name.startsWith(BEGINNING) ? name.indexOf('-', BEGINNING.length()) + 1 + UUID_LENGTH : -1;
    if (begin > UUID_LENGTH && begin <= name.length()) {
      return name.substring(begin);
    }
    int point = name.indexOf('.');
    return point < 0 ? "" : name.substring(point);
  }

  /** Whether a file is one of an attempt's, by its name. */
  static boolean isOf(long attempt, String name) {
    String id = new UUID(attempt, 0).toString().substring(0, UUID_LENGTH / 2);
    return name.startsWith(BEGINNING) && name.startsWith(id, name.indexOf('-', BEGINNING.length()) + 1);
  }
}
