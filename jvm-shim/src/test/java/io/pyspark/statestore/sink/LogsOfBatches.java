package io.pyspark.statestore.sink;

import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;

/** Asks {@link ListHoles} about an offset log. */
public final class LogsOfBatches {
  private LogsOfBatches() {}

  /** Which of the batches 0, 1, 2 ... write to no sink, by their entries. */
  public static String withoutOutput(List<String> entries) {
    SortedMap<Long, String> log = new TreeMap<>();
    entries.forEach(entry -> log.put((long) log.size(), entry));
    return new TreeSet<>(ListHoles.withoutOutput(log)).toString();
  }
}
