package io.pyspark.statestore.heap;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreRow;
import scala.Option;

/** Writes version after version in one thread, while others read and copy older ones. */
public final class HeapRace {
  private HeapRace() {}

  /** Runs the race, and returns how many times the readers compared a whole version. */
  public static long run(boolean hasPrefix, int versions, int changes, int readers) throws Exception {
    RowSchema schema = new RowSchema(HeapModel.KEYS, HeapModel.VALUES, hasPrefix ? 1 : 0);
    AtomicReference<List<HeapModel.Version>> published = new AtomicReference<>();
    HeapModel.Version newest = new HeapModel.Version(new HeapStateStoreMap(schema, Option.empty()), new HashMap<>());
    published.set(List.of(newest));
    AtomicBoolean ended = new AtomicBoolean();
    ExecutorService pool = Executors.newFixedThreadPool(readers);
    List<Future<Long>> results = new ArrayList<>();
    for (int reader = 0; reader < readers; reader++) {
      Random random = new Random(reader);
      results.add(
          pool.submit(
              () -> {
                long compared = 0;
                while (!ended.get() || compared < 10) {
                  List<HeapModel.Version> now = published.get();
                  HeapModel.Version one = now.get(random.nextInt(now.size()));
                  one.check();
                  // A second attempt of a task copies the same version, writes, and is abandoned.
                  HeapStateStoreMap attempt = new HeapStateStoreMap(schema, Option.empty());
                  attempt.putAll(one.map());
                  for (int each = 0; each < 20; each++) {
                    attempt.remove(HeapModel.key(random.nextInt(20), "k" + random.nextInt(40)));
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
        HeapStateStoreMap map = new HeapStateStoreMap(schema, Option.empty());
        map.putAll(newest.map());
        newest = new HeapModel.Version(map, new HashMap<>(newest.expected()));
        for (int change = 0; change < changes; change++) {
          UnsafeRow key = HeapModel.key(random.nextInt(20), "k" + random.nextInt(40));
          if (random.nextInt(3) == 0) {
            map.remove(key);
            newest.expected().remove(key);
          } else {
            UnsafeRow value = HeapModel.value(random.nextInt(60), random.nextInt());
            map.put(key, new StateStoreRow(value));
            newest.expected().put(key, value);
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
    return compared;
  }
}
