package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.fs.IndexEndpoint;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexTransport;
import io.pyspark.statestore.service.IndexService;
import io.pyspark.statestore.service.ServiceMessages;
import io.pyspark.statestore.write.LogOutputStream;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.TaskEnd;
import java.io.IOException;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEnv;

/** Asks the index service as executors do: by its RPC endpoint, or in the same process. */
public final class ServiceDoors {
  private ServiceDoors() {}

  /** What became of a question. */
  private static final class Caller implements RpcCallContext {
    private final CompletableFuture<byte[]> answer = new CompletableFuture<>();

    @Override
    public void reply(Object response) {
      answer.complete((byte[]) response);
    }

    @Override
    public void sendFailure(Throwable failure) {
      answer.completeExceptionally(failure);
    }

    @Override
    public RpcAddress senderAddress() {
      return new RpcAddress("localhost", 1);
    }
  }

  /**
   * Asks the endpoint for the service of a checkpoint.
   *
   * @return its answer; see {@link #outcome}
   */
  public static CompletableFuture<byte[]> open(String stateDirectory, String run) throws ReflectiveOperationException {
    var constructor = IndexEndpoint.class.getDeclaredConstructor(RpcEnv.class);
    constructor.setAccessible(true);
    Caller caller = new Caller();
    byte[] question = ServiceMessages.encode(new ServiceMessages.Open(stateDirectory, run));
    constructor.newInstance((RpcEnv) null).receiveAndReply(caller).apply(question);
    return caller.answer;
  }

  /** Waits for an answer, and says of what kind it is, or that there was none. */
  public static String outcome(CompletableFuture<byte[]> answer, long millis) throws Exception {
    try {
      ServiceMessages.Answer said = ServiceMessages.answer(answer.get(millis, TimeUnit.MILLISECONDS));
      return said instanceof ServiceMessages.Refused refused ? refused.reason() : said.getClass().getSimpleName();
    } catch (java.util.concurrent.ExecutionException e) {
      return "failure: " + e.getCause();
    } catch (java.util.concurrent.TimeoutException e) {
      return "none";
    }
  }

  /** What an executor hears where the driver cannot open a checkpoint, for a reason of so many characters. */
  public static String refusal(int characters) throws IOException {
    byte[] question = ServiceMessages.encode(new ServiceMessages.Open("file:/nowhere/state", "run"));
    byte[] answer =
        MergedLogs.answer(
                question,
                "sender",
                (directory, run) -> {
                  throw new IOException("€".repeat(characters));
                })
            .join();
    return ((ServiceMessages.Refused) ServiceMessages.answer(answer)).reason();
  }

  /**
   * One executor writes a changelog into each of some partitions, and another loads them all.
   *
   * @param bound bytes of an answer
   * @return the bytes of the longest answer, how many questions were asked, and how many partitions the other knows
   *     then
   */
  public static long[] loadAll(FileSystem fs, Path state, Configuration conf, int partitions, int versions, long bound)
      throws Exception {
    Options options = Options.from(conf);
    java.nio.file.Path local = Files.createTempDirectory("service-doors");
    ExecutorService threads = Executors.newCachedThreadPool(Threads.daemons("service-doors"));
    ProcessFacts facts = new ProcessFacts(Map::of, () -> local, () -> 1, 86_400_000, TaskEnd.NONE);
    List<Integer> lengths = new CopyOnWriteArrayList<>();
    long before = bound(bound);
    try {
      MergedLog driver = new MergedLog(fs, state, options, facts, threads, null, "run", "");
      driver.serve();
      IndexTransport way =
          question -> {
            byte[] answer = MergedLogs.answer(question, "sender", (directory, run) -> driver).join();
            if (ServiceMessages.question(question) instanceof ServiceMessages.AskFacts) {
              lengths.add(answer.length);
            }
            return CompletableFuture.completedFuture(answer);
          };
      MergedLog writer = new MergedLog(fs, state, options, facts, threads, way, "run", "");
      for (int partition = 0; partition < partitions; partition++) {
        for (int version = 1; version <= versions; version++) {
          try (LogOutputStream out = writer.create("0/" + partition + "/" + version + ".changelog")) {
            out.write(partition);
          }
        }
      }
      MergedLog reader = new MergedLog(fs, state, options, facts, threads, way, "run", "");
      FreshnessKey first = new FreshnessKey.StageAttempt("app", 1, 0, true);
      for (int partition = 0; partition < partitions; partition++) {
        reader.refreshFor("0/" + partition + "/1.changelog", first);
      }
      // Something changes everywhere, and the first task of the next stage asks for all that its process has.
      for (int partition = 0; partition < partitions; partition++) {
        try (LogOutputStream out = writer.create("0/" + partition + "/" + (versions + 1) + ".changelog")) {
          out.write(partition);
        }
      }
      lengths.clear();
      reader.refreshFor("0/0/1.changelog", new FreshnessKey.StageAttempt("app", 2, 0, true));
      int known = 0;
      for (int partition = 0; partition < partitions; partition++) {
        known += reader.find("0/" + partition + "/" + (versions + 1) + ".changelog") == null ? 0 : 1;
      }
      long[] found = {lengths.stream().mapToInt(length -> length).max().orElse(0), lengths.size(), known};
      List.of(writer, reader, driver).forEach(MergedLog::abandon);
      return found;
    } finally {
      bound(before);
      threads.shutdown();
    }
  }

  /**
   * Two changelogs lie in a file that is gone, and have been written elsewhere before. An executor that knew them in
   * the old file hears of it in two answers.
   *
   * @return how many of the two it finds at each question and at the end
   */
  public static int[] foundMeanwhile(FileSystem fs, Path state, Configuration conf) throws Exception {
    Options options = Options.from(conf);
    java.nio.file.Path local = Files.createTempDirectory("service-doors");
    ExecutorService threads = Executors.newCachedThreadPool(Threads.daemons("service-doors"));
    ProcessFacts facts = new ProcessFacts(Map::of, () -> local, () -> 1, 86_400_000, TaskEnd.NONE);
    String[] paths = {"0/0/1.changelog", "0/1/1.changelog"};
    List<Integer> found = new CopyOnWriteArrayList<>();
    AtomicReference<MergedLog> watched = new AtomicReference<>();
    long before = bound(1);
    try {
      MergedLog driver = new MergedLog(fs, state, options, facts, threads, null, "run", "");
      driver.serve();
      IndexTransport way =
          question -> {
            if (watched.get() != null) {
              found.add((int) Stream.of(paths).filter(path -> watched.get().find(path) != null).count());
            }
            return MergedLogs.answer(question, "sender", (directory, run) -> driver);
          };
      MergedLog writer = new MergedLog(fs, state, options, facts, threads, way, "run", "");
      MergedLog reader = new MergedLog(fs, state, options, facts, threads, way, "run", "");
      writeAll(writer, paths);
      writer.seal();
      String old = driver.find(paths[0]).file().name();
      FreshnessKey first = new FreshnessKey.StageAttempt("app", 1, 0, true);
      for (String path : paths) {
        reader.refreshFor(path, first);
      }
      writeAll(writer, paths);
      fs.delete(new Path(state, "_merged/" + old), false);
      driver.refresh();
      watched.set(reader);
      reader.refreshFor(paths[0], new FreshnessKey.StageAttempt("app", 2, 0, true));
      watched.set(null);
      found.add((int) Stream.of(paths).filter(path -> !reader.find(path).file().name().equals(old)).count());
      List.of(writer, reader, driver).forEach(MergedLog::abandon);
      return found.stream().mapToInt(count -> count).toArray();
    } finally {
      bound(before);
      threads.shutdown();
    }
  }

  private static void writeAll(MergedLog log, String... paths) throws IOException {
    for (String path : paths) {
      try (LogOutputStream out = log.create(path)) {
        out.write(1);
      }
    }
  }

  private static long bound(long bytes) {
    long before = IndexService.answerBytes;
    IndexService.answerBytes = bytes;
    return before;
  }
}
