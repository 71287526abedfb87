package io.pyspark.statestore.heap;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkThrowable;

/**
 * A process with a small heap, in which a store runs out of memory: in the middle of a batch, and while it is loaded.
 * It prints the results for Spark's provider and for ours, one "name=value" in a line.
 */
public final class SmallHeap {
  private static final int ROW_BYTES = 1_000_000;
  private static final String MANAGER = "spark.sql.streaming.checkpointFileManagerClass";

  private static byte[] reserve = new byte[4 << 20];

  private SmallHeap() {}

  /**
   * @param arguments a directory, and the classes of providers
   */
  public static void main(String[] arguments) throws Exception {
    for (int each = 1; each < arguments.length; each++) {
      String provider = arguments[each];
      boolean isOurs = provider.contains("pyspark");
      Map<String, String> hadoop = new LinkedHashMap<>();
      hadoop.put("fs.merged+file.impl", "io.pyspark.statestore.fs.MergedFileSystem");
      if (!isOurs) {
        hadoop.put(MANAGER, "io.pyspark.statestore.fs.MergedCheckpointFileManager");
      }
      String state = (isOurs ? "" : "merged+") + "file:" + arguments[0] + "/" + each + "/state";
      runOut(isOurs ? "ours" : "stock", provider, state, hadoop);
    }
  }

  private static void runOut(String name, String provider, String state, Map<String, String> hadoop) {
    long heap = Runtime.getRuntime().maxMemory();
    int rows = (int) (heap * 0.4 / ROW_BYTES);
    Map<String, Integer> expected;
    try (HeapStore store = new HeapStore(provider, state, false, Map.of(), hadoop)) {
      store.load(0);
      for (int row = 0; row < rows; row++) {
        store.put(0, "row" + row, ROW_BYTES, row);
      }
      store.commit();
      expected = store.read(1);
      store.load(1);
      print(
          name,
          "put",
          error(
              () -> {
                for (int row = 0; ; row++) {
                  store.put(1, "more" + row, ROW_BYTES, row);
                }
              }));
      reserve = null;
      store.abort();
      store.forgetWriting();
      reserve = new byte[4 << 20];
      print(name, "previous version", store.read(1).equals(expected));
      store.load(1);
      store.put(2, "next", 10, 1);
      store.remove(0, "row0");
      store.commit();
      expected = store.read(2);
    }
    List<byte[]> ballast = ballast((long) (heap * 0.2));
    try (HeapStore store = new HeapStore(provider, state, false, Map.of(), hadoop)) {
      print(name, "load", error(() -> store.read(2)));
      ballast.clear();
      print(name, "loaded in the end", store.read(2).equals(expected));
    }
  }

  /** Takes memory until only so many bytes are left. */
  private static List<byte[]> ballast(long left) {
    List<byte[]> chunks = new ArrayList<>();
    long free = Runtime.getRuntime().maxMemory() - HeapStore.usedHeap();
    for (; free > left; free -= 128 << 10) {
      chunks.add(new byte[128 << 10]);
    }
    return chunks;
  }

  private interface Action {
    void run();
  }

  private static String error(Action action) {
    try {
      action.run();
      return "none";
    } catch (Throwable e) {
      String condition = e instanceof SparkThrowable known ? " " + known.getCondition() : "";
      Throwable cause = e.getCause();
      return e.getClass().getName() + condition + (cause == null ? "" : " by " + cause.getClass().getName());
    }
  }

  private static void print(String name, String what, Object value) {
    System.out.println(name + " " + what + "=" + value);
  }
}
