package io.pyspark.statestore.heap;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A process whose heap is smaller than the rows of a store. It writes ten versions, each with a tenth of the keys new
 * and some of the others changed, looks at all rows, and opens the store once more. It prints a "name=value" in a line.
 */
public final class SpillingHeap {
  private static final int VERSIONS = 10;
  private static final String PREFIX = "spark.sql.streaming.stateStore.fileMerging.";

  private final int keys;
  private final int length;

  private SpillingHeap(int keys, int length) {
    this.keys = keys;
    this.length = length;
  }

  /**
   * @param arguments a directory, the class of a provider, the number of keys, the bytes of a value, and options:
   *     {@code heap.spill=auto}
   */
  public static void main(String[] arguments) throws Exception {
    Map<String, String> hadoop = new LinkedHashMap<>();
    hadoop.put("fs.merged+file.impl", "io.pyspark.statestore.fs.MergedFileSystem");
    for (int each = 4; each < arguments.length; each++) {
      String[] option = arguments[each].split("=");
      hadoop.put(PREFIX + option[0], option[1]);
    }
    String state = "file:" + arguments[0] + "/state";
    SpillingHeap work = new SpillingHeap(Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
    try (HeapStore store = new HeapStore(arguments[1], state, false, Map.of(), hadoop)) {
      for (int version = 1; version <= VERSIONS; version++) {
        work.write(store, version);
        if (version % 5 == 0) {
          store.maintain().join();
        }
      }
      print("spilled", HeapSpillMonitor.spilledBytes());
      print("rows", store.count(VERSIONS, work::expected, work.length));
      print("reads", HeapSpillMonitor.reads());
      print("files", HeapSpillMonitor.fileBytes());
    }
    try (HeapStore store = new HeapStore(arguments[1], state, false, Map.of(), hadoop)) {
      print("rows of a restart", store.count(VERSIONS, work::expected, work.length));
    }
  }

  private void write(HeapStore store, int version) {
    store.load(version - 1);
    int each = keys / VERSIONS;
    for (int key = 0; key < version * each; key++) {
      if (key / each + 1 == version || isChanged(key, version)) {
        store.put(0, "k" + key, length, version);
      }
    }
    store.commit();
    // Spark asks each store after each batch, and has it say which versions it has.
    store.memoryUsed();
  }

  private static boolean isChanged(int key, int version) {
    return (key * 7L + version) % 53 == 0;
  }

  /** The version that has written a key last, which is the seed of its value. */
  private int expected(int key) {
    for (int version = VERSIONS; version > key / (keys / VERSIONS) + 1; version--) {
      if (isChanged(key, version)) {
        return version;
      }
    }
    return key / (keys / VERSIONS) + 1;
  }

  private static void print(String what, Object value) {
    System.out.println(what + "=" + value);
  }
}
