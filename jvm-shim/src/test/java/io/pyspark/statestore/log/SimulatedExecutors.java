package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.write.LogOutputStream;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.TaskEnd;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Many executors of one query in one process, each with a log of its own, and their driver. A caller says what happens
 * next, so the calls of a counting file system are exact.
 *
 * <p>Threads are named so that the counts tell who calls: {@code driver}, {@code task} and {@code maintenance} for
 * executors, and {@code other} for executors that read segments. Each load checks that it sees all that was committed.
 */
public final class SimulatedExecutors implements AutoCloseable {
  private static final String DRIVER = "stream execution thread of the simulated driver";
  private static final String TASK = "Executor task launch worker of a simulated executor";
  private static final String MAINTENANCE = "state-store-maintenance-thread of a simulated executor";
  private static final String READER = "simulated reader of segments";

  /** Longer than any simulation: nothing becomes due by itself. */
  private static final long NEVER_MS = 86_400_000;

  private final FileSystem fs;
  private final Path state;
  private final Options options;
  private final boolean isServed;
  private final byte[] bytes;
  private final java.nio.file.Path local;
  private final ProcessFacts facts;
  private final ExecutorService driverThreads = threads(DRIVER);
  private final ExecutorService executorThreads = threads(TASK);
  private final List<Executor> executors = new ArrayList<>();

  /** By partition, what has to be there. */
  private final List<Store> stores = new ArrayList<>();

  private MergedLog driver;
  private int life;
  private int stage;
  private int version;
  private long questions;
  private long messageBytes;

  /** A state store, as Spark knows it. */
  private static final class Store {
    private final int partition;
    private int executor;

    /** By version, the paths of a snapshot's files. */
    private final TreeMap<Integer, List<String>> snapshots = new TreeMap<>();

    private final TreeSet<Integer> changelogs = new TreeSet<>();

    private Store(int partition, int executor) {
      this.partition = partition;
      this.executor = executor;
    }

    private String path(String name) {
      return "0/" + partition + "/" + name;
    }

    private String changelog(int version) {
      return path(version + ".changelog");
    }

    /** What a load reads: the newest snapshot and the changelogs after it. */
    private List<String> needed() {
      List<String> paths = new ArrayList<>();
      int from = 0;
      if (!snapshots.isEmpty()) {
        paths.addAll(snapshots.lastEntry().getValue());
        from = snapshots.lastKey();
      }
      changelogs.tailSet(from, false).forEach(changelog -> paths.add(changelog(changelog)));
      return paths;
    }
  }

  /** A process that runs tasks. */
  private final class Executor {
    private final Set<Integer> loaded = new HashSet<>();
    private MergedLog log;

    private MergedLog look(String path, FreshnessKey key) throws IOException {
      if (log == null) {
        log =
            new MergedLog(fs, state, options, facts, executorThreads, isServed ? this::ask : null, runId(), path, key);
      } else {
        log.refreshFor(path, key);
      }
      return log;
    }

    private CompletableFuture<byte[]> ask(byte[] question) throws IOException {
      byte[] answer = as(DRIVER, () -> MergedLogs.answer(question, this, SimulatedExecutors.this::driver).join());
      questions++;
      messageBytes += question.length + answer.length;
      return CompletableFuture.completedFuture(answer);
    }
  }

  /**
   * Makes a query that has not begun.
   *
   * @param state directory on {@code fs}
   * @param conf has the options of the logs
   * @param isServed whether executors ask an index service, or work by themselves
   * @param commitBytes of each changelog
   */
  public SimulatedExecutors(
      FileSystem fs, Path state, Configuration conf, int executors, int partitions, boolean isServed, int commitBytes)
      throws IOException {
    Cleaning.byHand();
    this.fs = fs;
    this.state = state;
    this.options = Options.from(conf);
    this.isServed = isServed;
    this.bytes = new byte[commitBytes];
    local = Files.createDirectories(java.nio.file.Path.of(state.toUri().getPath() + "-local"));
    facts = new ProcessFacts(Map::of, () -> local, () -> 1, NEVER_MS, TaskEnd.NONE);
    for (int each = 0; each < executors; each++) {
      this.executors.add(new Executor());
    }
    for (int partition = 0; partition < partitions; partition++) {
      stores.add(new Store(partition, partition % executors));
    }
  }

  // ---- what happens

  /** Runs a batch as Spark does: each executor loads the stores that it has not loaded yet, and commits all. */
  public void batch() throws IOException {
    batch(false);
  }

  /** Runs a batch in which every store asks for its files, as after a task that failed. */
  public void batchThatLoads() throws IOException {
    batch(true);
  }

  private void batch(boolean loadsAll) throws IOException {
    FreshnessKey key = new FreshnessKey.StageAttempt("life-" + life, stage++, 0, true);
    int next = version + 1;
    for (Store store : stores) {
      Executor executor = executors.get(store.executor);
      boolean isNew = executor.loaded.add(store.partition);
      if (loadsAll || isNew) {
        as(TASK, () -> executor.look(store.path("" + version), key));
        check(store, executor.log);
      }
      if (isNew) {
        as(READER, () -> read(store, executor.log));
      }
      as(TASK, () -> write(executor.log, store.changelog(next), bytes));
      store.changelogs.add(next);
    }
    version = next;
  }

  private void check(Store store, MergedLog log) {
    Set<String> found =
        log.index().listRecursively(store.path("").replaceAll("/$", "")).stream()
            .map(Segment::path)
            .collect(Collectors.toSet());
    if (!found.containsAll(store.needed()) || found.contains(store.changelog(version + 1))) {
      throw new AssertionError(
          "version "
              + version
              + " of partition "
              + store.partition
              + " needs "
              + store.needed()
              + ", and there are "
              + found);
    }
  }

  private static Void read(Store store, MergedLog log) throws IOException {
    for (String path : store.needed()) {
      log.copy(log.find(path), OutputStream.nullOutputStream());
    }
    return null;
  }

  private static Void write(MergedLog log, String path, byte[] bytes) throws IOException {
    try (LogOutputStream out = log.create(path)) {
      out.write(bytes, 0, bytes.length);
    }
    // The housekeeper does that in a process of its own.
    log.commits().sealDue();
    return null;
  }

  /** Maintains each store as Spark does: uploads a snapshot, and deletes what is older than it. */
  public void maintain() throws IOException {
    for (Store store : stores) {
      Executor executor = executors.get(store.executor);
      if (executor.loaded.contains(store.partition)) {
        as(MAINTENANCE, () -> maintain(store, executor.log));
      }
    }
  }

  private Void maintain(Store store, MergedLog log) throws IOException {
    log.maintain();
    String name = String.format("%06d-%08x.sst", version, store.partition);
    java.nio.file.Path sst = Files.createTempFile(local, "snapshot", ".sst");
    try {
      Files.write(sst, bytes);
      log.stage(store.path("SSTs/" + name), sst);
    } finally {
      Files.deleteIfExists(sst);
    }
    write(log, store.path(version + ".zip"), zip(name));
    store.snapshots.put(version, List.of(store.path(version + ".zip"), store.path("SSTs/" + name)));
    List<String> old = new ArrayList<>();
    store.snapshots.headMap(version).values().forEach(old::addAll);
    store.snapshots.headMap(version).clear();
    store.changelogs.headSet(version, true).forEach(changelog -> old.add(store.changelog(changelog)));
    store.changelogs.headSet(version, true).clear();
    old.forEach(log::delete);
    return null;
  }

  private static byte[] zip(String sst) throws IOException {
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    try (ZipOutputStream zip = new ZipOutputStream(packed)) {
      zip.putNextEntry(new ZipEntry("metadata"));
      String metadata = "v1\n{\"sstFiles\":[{\"localFileName\":\"l.sst\",\"dfsSstFileName\":\"" + sst + "\"}]}";
      zip.write(metadata.getBytes(StandardCharsets.UTF_8));
    }
    return packed.toByteArray();
  }

  /** Makes a cleaning pass, in the driver or in every executor; returns how many files it has unlinked. */
  public int clean() throws IOException {
    if (isServed) {
      return as(DRIVER, () -> driver.clean());
    }
    int gone = 0;
    for (Executor executor : executors) {
      gone += executor.log == null ? 0 : as(MAINTENANCE, executor.log::clean);
    }
    return gone;
  }

  /** Moves the first so many partitions, each to the executor after its own. */
  public void move(int partitions) {
    stores
        .subList(0, partitions)
        .forEach(
            store -> {
              executors.get(store.executor).loaded.remove(store.partition);
              store.executor = (store.executor + 1) % executors.size();
            });
  }

  /** Kills an executor. Another one takes its place. */
  public void killExecutor(int number) throws IOException {
    Executor dead = executors.set(number, new Executor());
    as(
        DRIVER,
        () -> {
          MergedLogs.lost(dead);
          return null;
        });
  }

  /** Kills all processes. They begin anew with the next batch, each with the partitions of another. */
  public void killAll() {
    if (driver != null) {
      // Nothing of it asks the file system: the driver writes no commits.
      driver.abandon();
      driver = null;
    }
    executors.replaceAll(dead -> new Executor());
    stores.forEach(store -> store.executor = (store.executor + 1) % executors.size());
    life++;
  }

  // ---- what came of it

  /** Questions that executors have asked or reports that they have made, so far. */
  public long questions() {
    return questions;
  }

  /** Bytes of questions and answers, so far. */
  public long messageBytes() {
    return messageBytes;
  }

  /** Ends all processes as a kill does. */
  @Override
  public void close() {
    killAll();
    driverThreads.shutdown();
    executorThreads.shutdown();
    Cleaning.byItself();
  }

  private MergedLog driver(String stateDirectory, String queryRunId) throws IOException {
    if (driver == null) {
      driver = new MergedLog(fs, state, options, facts, driverThreads, null, queryRunId, "");
    }
    driver.beginRun(null, new FreshnessKey.QueryRun(queryRunId));
    return driver;
  }

  private String runId() {
    return "run-" + life;
  }

  /** Does something in a thread of this name. */
  private static <T> T as(String name, Callable<T> action) throws IOException {
    Thread thread = Thread.currentThread();
    String before = thread.getName();
    thread.setName(name);
    try {
      return action.call();
    } catch (IOException | RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new IOException(e);
    } finally {
      thread.setName(before);
    }
  }

  private static ExecutorService threads(String name) {
    return Executors.newCachedThreadPool(
        task -> {
          Thread thread = new Thread(task, name);
          thread.setDaemon(true);
          return thread;
        });
  }
}
