package io.pyspark.statestore.heap;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreRow;
import scala.Option;

/** Writes version after version in one thread, while others read and copy older ones. */
public final class HeapRace {
  private static final int LEAST_READS = 100;

  private HeapRace() {}

  /**
   * Runs the race, and returns how many times the readers compared a whole version.
   *
   * @param directory where one more thread spills what it can, and tidies up, all the time; null for none
   */
  public static long run(boolean hasPrefix, int versions, int changes, int readers, String directory) throws Exception {
    HeapSpill spill = directory == null ? null : HeapSpill.unwatched(Path.of(directory));
    RowSchema schema = new RowSchema(HeapModel.KEYS, HeapModel.VALUES, hasPrefix ? 1 : 0);
    AtomicReference<List<HeapModel.Version>> published = new AtomicReference<>();
    HeapModel.Version newest =
        new HeapModel.Version(new HeapStateStoreMap(schema, Option.empty(), spill), new HashMap<>());
    // What is spilled is what most versions share.
    int names = spill == null ? 40 : 200;
    for (int each = 0; spill != null && each < 20 * names; each++) {
      put(newest, each % 20, each / 20, new Random(each));
    }
    published.set(List.of(newest));
    AtomicBoolean ended = new AtomicBoolean();
    long endNanos = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
    BooleanSupplier goesOn =
        () -> !ended.get() || (spill != null && spill.reads() < LEAST_READS && System.nanoTime() < endNanos);
    ExecutorService pool = Executors.newFixedThreadPool(readers + 1);
    List<Future<Long>> results = new ArrayList<>();
    if (spill != null) {
      results.add(
          pool.submit(
              () -> {
                while (goesOn.getAsBoolean()) {
                  spill.spill(Long.MAX_VALUE);
                  spill.tidy(Long.MAX_VALUE);
                }
                return 0L;
              }));
    }
    for (int reader = 0; reader < readers; reader++) {
      Random random = new Random(reader);
      results.add(
          pool.submit(
              () -> {
                long compared = 0;
                while (goesOn.getAsBoolean() || compared < 10) {
                  List<HeapModel.Version> now = published.get();
                  HeapModel.Version one = now.get(random.nextInt(now.size()));
                  one.check();
                  // A second attempt of a task copies the same version, writes, and is abandoned.
                  HeapStateStoreMap attempt = new HeapStateStoreMap(schema, Option.empty(), spill);
                  attempt.putAll(one.map());
                  for (int each = 0; each < 20; each++) {
                    attempt.remove(HeapModel.key(random.nextInt(20), "k" + random.nextInt(names)));
                  }
                  one.check();
                  compared++;
                }
                return compared;
              }));
    }
    Random random = new Random(-1);
    try {
      for (int version = 0; version < versions && results.stream().noneMatch(Future::isDone); version++) {
        HeapStateStoreMap map = new HeapStateStoreMap(schema, Option.empty(), spill);
        map.putAll(newest.map());
        newest = new HeapModel.Version(map, new HashMap<>(newest.expected()));
        for (int change = 0; change < changes; change++) {
          int group = random.nextInt(20);
          int name = random.nextInt(names);
          if (random.nextInt(3) == 0) {
            UnsafeRow key = HeapModel.key(group, "k" + name);
            map.remove(key);
            newest.expected().remove(key);
          } else {
            put(newest, group, name, random);
          }
        }
        List<HeapModel.Version> next = new ArrayList<>(published.get());
        next.add(newest);
        published.set(next.subList(Math.max(0, next.size() - 10), next.size()));
      }
    } finally {
      ended.set(true);
      pool.shutdown();
    }
    long compared = 0;
    for (Future<Long> result : results) {
      compared += result.get();
    }
    if (spill != null && spill.reads() < LEAST_READS) {
      throw new AssertionError("Only " + spill.reads() + " reads of what was spilled");
    }
    return compared;
  }

  /**
   * Writes the same few rows again and again, while another thread spills what it can, and compares in the end.
   *
   * @return how many buckets were read of files
   */
  public static long rewrite(int puts, String directory) throws Exception {
    HeapSpill spill = HeapSpill.unwatched(Path.of(directory));
    RowSchema schema = new RowSchema(HeapModel.KEYS, HeapModel.VALUES, 0);
    HeapModel.Version rows =
        new HeapModel.Version(new HeapStateStoreMap(schema, Option.empty(), spill), new HashMap<>());
    AtomicBoolean ended = new AtomicBoolean();
    Thread spilling =
        new Thread(
            () -> {
              while (!ended.get()) {
                spill.spill(Long.MAX_VALUE);
              }
            });
    spilling.start();
    Random random = new Random(7);
    for (int each = 0; each < puts; each++) {
      put(rows, random.nextInt(5), random.nextInt(20), random);
    }
    ended.set(true);
    spilling.join();
    rows.check();
    return spill.reads();
  }

  private static void put(HeapModel.Version version, int group, int name, Random random) {
    UnsafeRow key = HeapModel.key(group, "k" + name);
    UnsafeRow value = HeapModel.value(random.nextInt(60), random.nextInt());
    version.map().put(key, new StateStoreRow(value));
    version.expected().put(key, value);
  }
}
