package io.pyspark.statestore.write;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.index.LogicalPaths;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The partitions that this process has written to lately, and so probably will write to again. */
public final class ServedPartitions {
  private final Map<String, Long> lastWrittenMs = new ConcurrentHashMap<>();

  void written(String path) {
    lastWrittenMs.put(LogicalPaths.partition(path), Clocks.monotonicMs());
  }

  /** How long this process has not written to a path's partition; the largest long where it never has. */
  public long unwrittenMs(String path) {
    Long lastMs = lastWrittenMs.get(LogicalPaths.partition(path));
    return lastMs == null ? Long.MAX_VALUE : Clocks.monotonicMs() - lastMs;
  }

  /** How many partitions were written to within the last {@code ms}. */
  long writtenWithin(long ms) {
    long nowMs = Clocks.monotonicMs();
    return lastWrittenMs.values().stream().filter(lastMs -> nowMs - lastMs < ms).count();
  }

  /** The partitions that were written to within the last {@code ms}. */
  public List<String> writtenSince(long ms) {
    long nowMs = Clocks.monotonicMs();
    return lastWrittenMs.entrySet().stream()
        .filter(partition -> nowMs - partition.getValue() < ms)
        .map(Map.Entry::getKey)
        .sorted()
        .toList();
  }

  /** How long this process has written to no partition at all; {@code atMost} where it has forgotten them all. */
  public long idleMs(long atMost) {
    long nowMs = Clocks.monotonicMs();
    return lastWrittenMs.values().stream().mapToLong(lastMs -> nowMs - lastMs).min().orElse(atMost);
  }

  /** Forgets partitions that were not written to for {@code ms}. */
  public void forgetOlderThan(long ms) {
    long nowMs = Clocks.monotonicMs();
    lastWrittenMs.values().removeIf(lastMs -> nowMs - lastMs >= ms);
  }
}
