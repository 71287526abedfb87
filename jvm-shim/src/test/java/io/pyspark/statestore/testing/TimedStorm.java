package io.pyspark.statestore.testing;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Many threads that commit small state files as fast as they can, for some time. */
public final class TimedStorm {
  private final ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
  private final AtomicIntegerArray acknowledged;
  private final Thread[] writers;

  /**
   * Begins to commit. Each thread is a partition that commits its versions one after the other, {@code
   * <state>/0/<thread>/<n>.changelog} with {@link Storm#content}.
   *
   * @param pauseMicros the pause between two commits of a thread
   */
  public TimedStorm(FileSystem fs, String state, int threads, long millis, long pauseMicros) throws IOException {
    acknowledged = new AtomicIntegerArray(threads);
    writers = new Thread[threads];
    CountDownLatch start = new CountDownLatch(1);
    for (int t = 0; t < threads; t++) {
      int partition = t;
      writers[t] = new Thread(() -> run(fs, state, partition, millis, pauseMicros, start), "storm-" + t);
      writers[t].setDaemon(true);
      writers[t].start();
    }
    fs.mkdirs(new Path(state + "/0/0"));
    start.countDown();
  }

  private void run(FileSystem fs, String state, int partition, long millis, long pauseMicros, CountDownLatch start) {
    try {
      start.await();
      long end = System.nanoTime() + millis * 1_000_000;
      for (int version = 1; System.nanoTime() < end; version++) {
        Path path = new Path(state + "/0/" + partition + "/" + version + ".changelog");
        Storm.write(fs, path, Storm.content(partition, version));
        acknowledged.set(partition, version);
        TimeUnit.MICROSECONDS.sleep(pauseMicros);
      }
    } catch (Exception | Error e) {
      failures.add(partition + ": " + e);
    }
  }

  /** The last version of a thread whose commit succeeded. */
  public int acknowledged(int thread) {
    return acknowledged.get(thread);
  }

  /** Waits for the end, and returns what failed. */
  public List<String> failures() throws InterruptedException {
    for (Thread writer : writers) {
      writer.join();
    }
    return List.copyOf(failures);
  }
}
