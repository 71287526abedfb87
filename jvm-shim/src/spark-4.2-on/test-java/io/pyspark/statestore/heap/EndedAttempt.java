package io.pyspark.statestore.heap;

import java.lang.ref.WeakReference;
import java.util.AbstractList;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.execution.streaming.state.StateStoreRow;
import scala.Option;

/** What a store that may spill knows of attempts of a task. Prints a "name=value" in a line. */
public final class EndedAttempt {
  private static final int BYTES = 100;
  private static final long MOST_NANOS = 30_000_000_000L;

  private EndedAttempt() {}

  /**
   * An attempt that has ended, and that nobody has any more, while memory is watched, as it always is.
   *
   * @param arguments none
   */
  public static void main(String[] arguments) throws InterruptedException {
    HeapSpill spill = HeapSpill.open("attempts", 0.99, 0.98);
    // Marking it takes longer than it is from one look at memory to the next.
    byte[][] others = new byte[1_000_000][];
    for (int each = 0; each < others.length; each++) {
      others[each] = new byte[BYTES];
    }
    HeapStateStoreMap attempt = map(spill);
    fill(attempt, 100_000);
    long before = spill.heapBytes();
    System.gc(); // what is reachable is old now, so only collections that run beside the program take it
    WeakReference<RowTrie> seen = new WeakReference<>(attempt.rows);
    attempt = null;
    Random random = new Random(1);
    long end = System.nanoTime() + MOST_NANOS;
    while (!seen.refersTo(null) && System.nanoTime() - end < 0) {
      for (int each = 0; each < 20_000; each++) {
        others[random.nextInt(others.length)] = new byte[BYTES];
      }
      Thread.sleep(1);
    }
    System.out.println("it had=" + before);
    System.out.println("it is gone=" + seen.refersTo(null));
    System.out.println("bytes=" + spill.heapBytes());
    System.exit(0);
  }

  /**
   * Memory runs out while the store says which versions it has, and an attempt is being written.
   *
   * @return bytes of heap before and after, as who watches memory is told
   */
  public static long[] outOfMemory() {
    HeapSpill spill = HeapSpill.open("attempts", 0.99, 0.98);
    HeapStateStoreMap base = map(spill);
    fill(base, 5_000);
    HeapStateStoreMap.keepOnly(spill, List.of(base));
    HeapStateStoreMap attempt = map(spill);
    attempt.putAll(base);
    fill(attempt, 10_000);
    long before = spill.heapBytes();
    try {
      spill.keepOnly(
          new AbstractList<>() {
            @Override
            public int size() {
              return 2;
            }

            @Override
            public boolean contains(Object version) {
              return version == base.rows;
            }

            @Override
            public RowTrie get(int index) {
              if (index == 1) {
                throw new OutOfMemoryError("of a test");
              }
              return base.rows;
            }
          });
    } catch (OutOfMemoryError e) {
      return new long[] {before, spill.heapBytes()};
    } finally {
      spill.close();
    }
    throw new AssertionError("nothing failed");
  }

  private static HeapStateStoreMap map(HeapSpill spill) {
    return new HeapStateStoreMap(new RowSchema(HeapModel.KEYS, HeapModel.VALUES, 0), Option.empty(), spill);
  }

  private static void fill(HeapStateStoreMap map, int rows) {
    for (int each = 0; each < rows; each++) {
      map.put(HeapModel.key(0, "k" + each), new StateStoreRow(HeapModel.value(BYTES, each)));
    }
  }
}
