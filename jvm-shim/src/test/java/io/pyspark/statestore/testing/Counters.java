package io.pyspark.statestore.testing;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.InterruptedIOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.apache.hadoop.fs.Path;

/**
 * Counts this process's calls of the test file systems, and delays metadata calls.
 *
 * <p>There is one count for each root label, thread kind, category and operation. A test registers root labels, so that
 * the counts of two queries in one JVM stay apart even if their background threads run at the same time. Counts only
 * grow between two calls of {@link #reset()}, so the difference of two snapshots is exact without stopping anything.
 */
final class Counters {
  private static final Set<String> TOP_LEVEL = Set.of("state", "offsets", "commits", "sources", "metadata");
  private static final String UNREGISTERED = "";

  private record Key(String root, String thread, String category, String operation) {}

  private record Root(String label, String prefix) {}

  private static final Map<Key, LongAdder> COUNTS = new ConcurrentHashMap<>();

  /** Executors, which nobody can call, are told at their start. */
  private static final Map<String, Long> DELAYS =
      new ConcurrentHashMap<>(Map.of("*", Long.getLong("pyspark.statestore.testing.delayMillis", 0)));

  private static volatile List<Root> roots = List.of();

  /** What a stream reads in a second; 0 is as fast as it goes. */
  private static volatile long bytesPerSecond = Long.getLong("pyspark.statestore.testing.bytesPerSecond", 0);

  /** What a flush takes longer than the local disk's, as on data nodes. */
  private static final long FLUSH_MILLIS = Long.getLong("pyspark.statestore.testing.flushMillis", 0);

  private static final long SHORTEST_WAIT_NANOS = 1_000_000;
  private static final ThreadLocal<long[]> OWED_NANOS = ThreadLocal.withInitial(() -> new long[1]);

  private Counters() {}

  /** Counts a metadata call, and sleeps for the delay of its category. */
  static void metadataCall(String operation, Path path) throws InterruptedIOException {
    Key key = key(operation, path);
    count(key, 1);
    long millis = DELAYS.getOrDefault(key.category, DELAYS.getOrDefault("*", 0L));
    if (millis > 0 && !operation.equals("other")) {
      sleep(millis, operation, path);
    }
  }

  /** Waits as long as a flush takes on its way to other machines. */
  static void flush(String operation, Path path) throws InterruptedIOException {
    if (FLUSH_MILLIS > 0) {
      sleep(FLUSH_MILLIS, operation, path);
    }
  }

  private static void sleep(long millis, String operation, Path path) throws InterruptedIOException {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException e) {
      // Keep the flag: Spark kills tasks by interrupting them.
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted in the injected delay of " + operation + " " + path);
    }
  }

  static void setBytesPerSecond(long bytes) {
    bytesPerSecond = bytes;
  }

  /**
   * Waits as long as these bytes take on the way. A short wait takes longer than it is told, so a thread remembers what
   * it owes until that is a millisecond; otherwise whoever reads little at a time would be slowed down more.
   */
  static void transfer(Path path, long bytes) throws InterruptedIOException {
    long rate = bytesPerSecond;
    if (rate > 0 && bytes > 0) {
      long[] owed = OWED_NANOS.get();
      owed[0] += bytes * 1_000_000_000L / rate;
      if (owed[0] >= SHORTEST_WAIT_NANOS) {
        long began = System.nanoTime();
        LockSupport.parkNanos(owed[0]);
        owed[0] -= System.nanoTime() - began;
      }
      if (Thread.currentThread().isInterrupted()) {
        throw new InterruptedIOException("interrupted while " + path + " was read slowly");
      }
    }
  }

  /** Adds to a counter without a delay: for calls on streams, and for quantities such as bytes. */
  static void add(String operation, Path path, long amount) {
    count(key(operation, path), amount);
  }

  private static void count(Key key, long amount) {
    COUNTS.computeIfAbsent(key, k -> new LongAdder()).add(amount);
  }

  private static Key key(String operation, Path path) {
    String full = path.toUri().getPath();
    Root root = rootOf(full);
    String relative = root == null ? full : full.substring(root.prefix.length());
    return new Key(root == null ? UNREGISTERED : root.label, threadKind(), category(relative, root != null), operation);
  }

  private static Root rootOf(String path) {
    Root best = null;
    for (Root root : roots) {
      boolean below =
          path.startsWith(root.prefix)
              && (path.length() == root.prefix.length() || path.charAt(root.prefix.length()) == '/');
      if (below && (best == null || root.prefix.length() > best.prefix.length())) {
        best = root;
      }
    }
    return best;
  }

  /** The part of a checkpoint that a path belongs to. Below a registered root only the first component decides. */
  private static String category(String path, boolean rooted) {
    String[] parts = (path.startsWith("/") ? path.substring(1) : path).split("/");
    for (int i = 0; i < (rooted ? 1 : parts.length); i++) {
      if (parts[i].equals("state")) {
        return stateCategory(parts, i + 1);
      }
      if (TOP_LEVEL.contains(parts[i])) {
        return parts[i];
      }
      // Spark writes its logs through a temp file beside the target: ".metadata.<uuid>.tmp".
      if (parts[i].startsWith(".metadata.")) {
        return "metadata";
      }
    }
    return "other";
  }

  private static String stateCategory(String[] parts, int from) {
    for (int i = from; i < parts.length; i++) {
      if (parts[i].equals("_merged")) {
        return "merged";
      }
      if (parts[i].equals("_metadata") || parts[i].equals("_stateSchema")) {
        return "state_meta";
      }
    }
    return "state";
  }

  private static String threadKind() {
    String name = Thread.currentThread().getName();
    if (name.startsWith("Executor task launch")) {
      return "task";
    }
    if (name.startsWith("stream execution thread")) {
      return "driver";
    }
    return name.contains("maintenance") ? "maintenance" : "other";
  }

  /** All counts as nested JSON objects: root label, thread kind, category, operation, count. */
  static String snapshotJson() {
    Map<String, Map<String, Map<String, Map<String, Long>>>> out = new TreeMap<>();
    COUNTS.forEach(
        (key, count) ->
            out.computeIfAbsent(key.root, k -> new TreeMap<>())
                .computeIfAbsent(key.thread, k -> new TreeMap<>())
                .computeIfAbsent(key.category, k -> new TreeMap<>())
                .put(key.operation, count.sum()));
    try {
      return new ObjectMapper().writeValueAsString(out);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  static void reset() {
    COUNTS.clear();
  }

  static synchronized void registerRoot(String label, String pathPrefix) {
    String path = new Path(pathPrefix).toUri().getPath();
    List<Root> next = new java.util.ArrayList<>(roots);
    next.add(new Root(label, path));
    roots = List.copyOf(next);
  }

  static synchronized void clearRoots() {
    roots = List.of();
  }

  static void setDelayMillis(String category, long millis) {
    DELAYS.put(category, millis);
  }
}
