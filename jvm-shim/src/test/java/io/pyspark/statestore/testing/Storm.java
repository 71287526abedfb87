package io.pyspark.statestore.testing;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Many threads that commit small state files at the same time. */
public final class Storm {
  private Storm() {}

  private interface Action {
    void run() throws Exception;
  }

  /**
   * Commits in many threads. Each is a partition that commits its versions one after the other, {@code
   * <state>/0/<thread>/<n>.changelog} with {@link #content}.
   *
   * @return the path and the message of each commit that failed
   */
  public static List<String> commit(FileSystem fs, String state, int threads, int commits) throws Exception {
    return run(fs, state, threads, commits, null);
  }

  /** As {@link #commit}, while another thread lists the directory over and over, which refreshes the index. */
  public static List<String> commitWhileListing(FileSystem fs, String state, int threads, int commits)
      throws Exception {
    return run(fs, state, threads, commits, () -> fs.listStatus(new Path(state + "/0/0")));
  }

  private static List<String> run(FileSystem fs, String state, int threads, int commits, Action meanwhile)
      throws Exception {
    ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
    CountDownLatch start = new CountDownLatch(1);
    AtomicBoolean over = new AtomicBoolean();
    Thread[] writers = new Thread[threads];
    for (int t = 0; t < threads; t++) {
      int partition = t;
      writers[t] =
          started(
              failures,
              () -> {
                start.await();
                for (int version = 1; version <= commits; version++) {
                  String path = "0/" + partition + "/" + version + ".changelog";
                  try {
                    write(fs, new Path(state + "/" + path), content(partition, version));
                  } catch (IOException e) {
                    failures.add(path + " " + e.getMessage());
                  }
                }
              });
    }
    Thread looker =
        started(
            failures,
            () -> {
              start.await();
              while (meanwhile != null && !over.get()) {
                meanwhile.run();
              }
            });
    fs.mkdirs(new Path(state + "/0/0"));
    start.countDown();
    for (Thread writer : writers) {
      writer.join();
    }
    over.set(true);
    looker.join();
    return List.copyOf(failures);
  }

  private static Thread started(ConcurrentLinkedQueue<String> failures, Action action) {
    Thread thread =
        new Thread(
            () -> {
              try {
                action.run();
              } catch (Exception | Error e) {
                failures.add(e.toString());
              }
            });
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  static void write(FileSystem fs, Path path, byte[] bytes) throws IOException {
    try (FSDataOutputStream out = fs.create(path, true)) {
      out.write(bytes);
    }
  }

  /** The content of a version of a partition, which names both. */
  public static byte[] content(int partition, int version) {
    String text = "partition " + partition + " version " + version + " ";
    return text.repeat(1 + new Random(31L * partition + version).nextInt(9)).getBytes(StandardCharsets.UTF_8);
  }
}
