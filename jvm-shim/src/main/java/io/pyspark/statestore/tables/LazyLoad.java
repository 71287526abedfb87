package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Parallel;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.read.Prefetcher;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;

/**
 * What the current thread loads is a store that can open SSTs of which only the ends are there. Spark copies a
 * version's files one after the other, in the thread that loads it; files that other threads copy are copied whole.
 */
public final class LazyLoad implements AutoCloseable {
  /** At first as much of a file's end is fetched. Mostly that is all that is behind the data. */
  static volatile int end = 64 << 10;

  /** Of a large file, one part in so many. What is behind the data and is not in it takes another request. */
  private static final int END_SHARE = 256;

  private static final ThreadLocal<LazyLoad> CURRENT = new ThreadLocal<>();

  private final LazyFiles files;

  /** The ends that are being fetched, by the path of their SST. */
  private final Map<String, FutureTask<byte[]>> ends = new HashMap<>();

  private final Deque<Segment> waiting = new ArrayDeque<>();
  private long held;

  /** Reads a file's end. */
  interface Ends {
    byte[] read(Segment segment) throws Exception;
  }

  private LazyLoad(LazyFiles files) {
    this.files = files;
  }

  /** The current thread loads a store. */
  public static LazyLoad begin(LazyFiles files) {
    LazyLoad load = new LazyLoad(files);
    CURRENT.set(load);
    return load;
  }

  /** Of the current thread, or null. */
  static LazyLoad current() {
    return CURRENT.get();
  }

  LazyFiles files() {
    return files;
  }

  /** Whether a file may be there in parts. */
  static boolean suits(Segment segment) {
    return segment.path().endsWith(".sst") && segment.length() >= PartialFile.smallest;
  }

  /** Where the end of a file begins that is fetched first. */
  static long endOf(long length) {
    long bytes = Math.min(length, Math.max(end, length / END_SHARE));
    long start = length - bytes;
    return start - start % PartialFile.alignment();
  }

  /** Files will be copied. Fetches their ends, several at a time. */
  void expect(List<Segment> segments, Ends reader, Executor threads) {
    waiting.addAll(segments);
    startMore(reader, threads);
  }

  private void startMore(Ends reader, Executor threads) {
    while (!waiting.isEmpty() && ends.size() < Parallel.READS && (ends.isEmpty() || held < Prefetcher.MEMORY)) {
      Segment segment = waiting.poll();
      FutureTask<byte[]> task = new FutureTask<>(() -> reader.read(segment));
      held += segment.length() - endOf(segment.length());
      ends.put(segment.path(), task);
      try {
        threads.execute(task);
      } catch (RejectedExecutionException | OutOfMemoryError e) {
        // No thread can be started. Whoever takes the end fetches it.
        return;
      }
    }
  }

  /** The end of a file if it was fetched, else null. */
  byte[] take(Segment segment, Ends reader, Executor threads) throws InterruptedException {
    FutureTask<byte[]> task = ends.remove(segment.path());
    waiting.remove(segment);
    if (task == null) {
      return null;
    }
    held -= segment.length() - endOf(segment.length());
    startMore(reader, threads);
    // Where no thread has begun it, this one does.
    task.run();
    try {
      return task.get();
    } catch (ExecutionException e) {
      // Reading it again says what is wrong.
      return null;
    }
  }

  @Override
  public void close() {
    CURRENT.remove();
  }
}
