package io.pyspark.statestore.service;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.clean.Garbage;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.index.HybridClock;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexSource;
import io.pyspark.statestore.learn.IndexTransport;
import io.pyspark.statestore.learn.RecentKeys;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.write.BatchCommits;
import io.pyspark.statestore.write.BatchDebts;
import io.pyspark.statestore.write.Reporter;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Stream;

/**
 * The index service as the source of the index, for an executor's log: it knows the facts of the partitions that the
 * executor serves, and reads no index of any file. What this process makes durable it reports.
 *
 * <p>Facts are a set: entries are added, and go only with their file. So it does not matter in which order reports and
 * answers arrive. Only that a file is gone must not be followed by an older answer that has the file still, so one
 * question is under way at a time.
 */
public final class ServiceSource implements IndexSource, Reporter, BatchCommits.Driver {
  /** The age of a view that maintenance may work with. */
  private static final long MAINTENANCE_VIEW_NANOS = 10_000_000_000L;

  private static final long FORGET_NANOS = 5_000_000_000L;

  private final IndexTransport transport;
  private final String checkpoint;
  private final long epoch;
  private final boolean bornMerged;
  private final long writerId;
  private final Index index;
  private final Rules rules;
  private final HybridClock clock;
  private final LogMetrics metrics;
  private final Consumer<MergedFile> forget;
  private final Runnable onStale;
  private final Executor threads;
  private final Map<String, Known> partitions = new ConcurrentHashMap<>();

  /** Partitions that threads wait for. */
  private final Set<String> wanted = ConcurrentHashMap.newKeySet();

  private final ReentrantLock asking = new ReentrantLock();
  private final RecentKeys keys = new RecentKeys();

  /** Number of the newest question that was sent. */
  private volatile long begun;

  private volatile long lastBeganNanos = System.nanoTime();
  private volatile long lastForgotNanos = System.nanoTime();
  private volatile long liveBytes;
  private long goneUpTo;

  /** What is known of one partition. */
  private static final class Known {
    /** The revision of which all entries are in the index; 0 before the first answer. */
    private long revision;

    /** Number of the newest question that was answered for it. */
    private volatile long answeredIn;

    /** As {@code answeredIn}, of those for which the service read the files first. */
    private volatile long readIn;

    private long usedNanos = System.nanoTime();
    private boolean forgotten;

    /** Notes that it is used now; returns false where it was forgotten. */
    private synchronized boolean use() {
      usedNanos = System.nanoTime();
      return !forgotten;
    }

    /** Forgets it where it was not used for {@code ms}. */
    private synchronized boolean forgetAfter(long ms) {
      forgotten |= (System.nanoTime() - usedNanos) / 1_000_000 >= ms;
      return forgotten;
    }
  }

  /**
   * Opens the source of a log.
   *
   * @param transport the way to the service; null where there is none
   * @return null where no service serves the checkpoint
   */
  public static ServiceSource of(
      IndexTransport transport,
      String stateDirectory,
      String queryRunId,
      long writerId,
      Index index,
      Rules rules,
      HybridClock clock,
      LogMetrics metrics,
      Consumer<MergedFile> forget,
      Runnable onStale,
      Executor threads)
      throws IOException {
    ServiceMessages.Opened opened = transport == null ? null : open(transport, stateDirectory, queryRunId);
    return opened == null
        ? null
        : new ServiceSource(
            transport, stateDirectory, opened, writerId, index, rules, clock, metrics, forget, onStale, threads);
  }

  /**
   * @param opened what the service has answered first
   * @param forget removes a file that is gone from the index, and closes what is open of it
   * @param onStale called where the service does not know this log's epoch any more
   * @param threads send reports
   */
  ServiceSource(
      IndexTransport transport,
      String checkpoint,
      ServiceMessages.Opened opened,
      long writerId,
      Index index,
      Rules rules,
      HybridClock clock,
      LogMetrics metrics,
      Consumer<MergedFile> forget,
      Runnable onStale,
      Executor threads) {
    this.transport = transport;
    this.checkpoint = checkpoint;
    this.epoch = opened.epoch();
    this.bornMerged = opened.bornMerged();
    this.writerId = writerId;
    this.index = index;
    this.rules = rules;
    this.clock = clock;
    this.metrics = metrics;
    this.forget = forget;
    this.onStale = onStale;
    this.threads = threads;
    this.goneUpTo = opened.goneNow();
    clock.observe(opened.stamp());
  }

  /**
   * Asks for the service of a checkpoint.
   *
   * @return what it says, or null where the service does not serve the checkpoint
   */
  static ServiceMessages.Opened open(IndexTransport transport, String stateDirectory, String queryRunId)
      throws IOException {
    ServiceMessages.Open question = new ServiceMessages.Open(stateDirectory, queryRunId);
    ServiceMessages.Answer answer = ask(transport, stateDirectory, question);
    if (answer instanceof ServiceMessages.Refused refused) {
      if (refused.isStale()) {
        return null;
      }
      throw refusal(stateDirectory, refused);
    }
    return expect(ServiceMessages.Opened.class, answer, stateDirectory);
  }

  /** Whether a service serves a checkpoint, for a run of its query. */
  public static boolean serves(IndexTransport transport, String stateDirectory, FreshnessKey.QueryRun run)
      throws IOException {
    return open(transport, stateDirectory, run.id()) != null;
  }

  /** The state directory of its checkpoint. */
  String stateDirectory() {
    return checkpoint;
  }

  /** Whether the checkpoint was begun with merging, as the service has said first. */
  public boolean bornMerged() {
    return bornMerged;
  }

  @Override
  public boolean beginRun(IndexTransport way, FreshnessKey.QueryRun run) throws IOException {
    ServiceMessages.Opened opened = way == null ? null : open(way, checkpoint, run.id());
    return opened != null && opened.epoch() == epoch;
  }

  // ---- learning

  @Override
  public void refreshFor(String path, FreshnessKey... asked) throws IOException {
    boolean filesFirst = !Stream.of(asked).allMatch(FreshnessKey::isOfQuery);
    ask(path, keys.needed(() -> begun, asked), filesFirst);
  }

  @Override
  public void refresh(String path) throws IOException {
    ask(path, begun + 1, false);
  }

  @Override
  public void refreshFromFiles(String path) throws IOException {
    ask(path, begun + 1, true);
  }

  @Override
  public void refreshForMaintenance() throws IOException {
    if (System.nanoTime() - lastBeganNanos > MAINTENANCE_VIEW_NANOS) {
      askForAll();
    }
  }

  @Override
  public boolean refreshForRelocation() throws IOException {
    askForAll();
    return false;
  }

  private void askForAll() throws IOException {
    asking.lock();
    try {
      question(partitions.keySet(), false);
    } finally {
      asking.unlock();
    }
  }

  private Known known(String partition) {
    return partitions.computeIfAbsent(partition, p -> new Known());
  }

  private void ask(String path, long needed, boolean filesFirst) throws IOException {
    String partition = LogicalPaths.partition(path);
    Known known = known(partition);
    while (!known.use()) {
      partitions.remove(partition, known);
      known = known(partition);
    }
    if ((filesFirst ? known.readIn : known.answeredIn) >= needed) {
      return;
    }
    wanted.add(partition);
    asking.lock();
    try {
      if ((filesFirst ? known.readIn : known.answeredIn) >= needed) {
        return;
      }
      // The first task of a stage asks for all partitions that this process has, and for those that tasks wait for.
      List<String> due = new ArrayList<>();
      partitions.forEach(
          (name, other) -> {
            if (other.answeredIn < needed || wanted.contains(name)) {
              due.add(name);
            }
          });
      question(due, filesFirst);
    } finally {
      asking.unlock();
    }
  }

  /** Asks for partitions and takes in what is answered. The caller holds {@code asking}. */
  private void question(Iterable<String> due, boolean filesFirst) throws IOException {
    long number = begun + 1;
    begun = number;
    lastBeganNanos = System.nanoTime();
    Map<String, Long> revisions = new LinkedHashMap<>();
    for (String name : due) {
      Known known = known(name);
      synchronized (known) {
        revisions.put(name, known.revision);
      }
      wanted.remove(name);
    }
    Map<String, Long> left = new LinkedHashMap<>(revisions);
    ServiceMessages.Facts first = null;
    do {
      // What the service has read for the first answer is in the others.
      ServiceMessages.Facts facts =
          expect(
              ServiceMessages.Facts.class,
              ask(new ServiceMessages.AskFacts(epoch, writerId, goneUpTo, left, filesFirst && first == null)));
      if (!left.isEmpty() && facts.left().size() >= left.size()) {
        throw failed(checkpoint, "it answered for no partition", null);
      }
      apply(facts);
      left.keySet().retainAll(Set.copyOf(facts.left()));
      first = first == null ? facts : first;
    } while (!left.isEmpty());
    // Last, and only what was gone before the first answer: what was moved out of these files is in one of the answers.
    forgetGone(first);
    for (String name : revisions.keySet()) {
      Known known = known(name);
      known.answeredIn = number;
      if (filesFirst) {
        known.readIn = number;
      }
    }
    metrics.asked();
  }

  private void apply(ServiceMessages.Facts facts) {
    clock.observe(facts.stamp());
    liveBytes = facts.liveBytes();
    for (ServiceMessages.PartitionFacts partition : facts.partitions()) {
      for (ServiceMessages.FileFacts found : partition.files()) {
        MergedFile file = index.addIfAbsent(new MergedFile(found.name(), MergedFile.Writer.OTHER, rules.now()));
        file.told(found.size(), found.sealed());
        if (!found.foreign().isEmpty()) {
          file.references(found.foreign());
        }
        index.apply(file, found.entries());
      }
      Known known = known(partition.partition());
      synchronized (known) {
        known.revision = partition.revision();
      }
    }
  }

  private void forgetGone(ServiceMessages.Facts facts) {
    for (String name : facts.gone()) {
      MergedFile file = index.file(name);
      if (file != null) {
        forget.accept(file);
      }
    }
    goneUpTo = facts.goneNow();
  }

  @Override
  public long liveBytes() {
    return liveBytes;
  }

  /**
   * Forgets the partitions that this process does not serve any more.
   *
   * @param isServed whether a partition's stores are loaded here, or were written to lately
   * @param keepMs how long a partition is kept after it was last asked for
   */
  public void forgetUnserved(Predicate<String> isServed, long keepMs) {
    long now = System.nanoTime();
    if (now - lastForgotNanos < FORGET_NANOS) {
      return;
    }
    lastForgotNanos = now;
    partitions.forEach(
        (name, known) -> {
          if (!isServed.test(name) && asking.tryLock()) {
            try {
              if (known.forgetAfter(keepMs)) {
                partitions.remove(name, known);
                index.forgetPartition(name);
              }
            } finally {
              asking.unlock();
            }
          }
        });
  }

  // ---- telling

  @Override
  public Receipt report(MergedFile file, long trailer, long stamp, boolean sealed, List<Entry> entries)
      throws IOException {
    byte[] report =
        ServiceMessages.encode(
            new ServiceMessages.Report(epoch, writerId, file.name(), file.size(), trailer, stamp, sealed, entries));
    CompletableFuture<Void> heard = sent(report).thenAccept(this::reported);
    return new Receipt() {
      @Override
      public void await() throws IOException {
        orFailed(checkpoint, () -> IndexTransport.await(heard));
      }

      @Override
      public boolean isUnderWay() {
        return !heard.isDone();
      }

      @Override
      public boolean isFailed() {
        return heard.isCompletedExceptionally();
      }
    };
  }

  /** Sends a report from another thread: sending takes Spark's RPC longer than flushing takes a local disk. */
  private CompletableFuture<byte[]> sent(byte[] report) {
    try {
      return CompletableFuture.supplyAsync(() -> sentNow(report), threads).thenCompose(answer -> answer);
    } catch (RuntimeException | Error e) {
      // A process at its limit of threads has an OutOfMemoryError here.
      return sentNow(report);
    }
  }

  private CompletableFuture<byte[]> sentNow(byte[] report) {
    try {
      return transport.send(report);
    } catch (IOException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private void reported(byte[] said) {
    try {
      ServiceMessages.Reported answer = expect(ServiceMessages.Reported.class, accepted(ServiceMessages.answer(said)));
      clock.observe(answer.stamp());
      liveBytes = answer.liveBytes();
      answer
          .revisions()
          .forEach(
              (partition, span) -> {
                Known known = known(partition);
                synchronized (known) {
                  // What this process has is what the service had before, and what it has just reported.
                  if (known.revision == span.before()) {
                    known.revision = span.after();
                  }
                }
              });
    } catch (IOException e) {
      throw new CompletionException(e);
    }
  }

  @Override
  public void left(MergedFile file) {
    try {
      ask(new ServiceMessages.Left(epoch, writerId, file.name(), clock.newest()));
    } catch (IOException e) {
      // The service reads the file's end by itself once the file counts as closed, or this process as lost.
    }
  }

  /** Asks out of which files to move live segments of the partitions that this process has written to. */
  public Garbage.Moves moves(List<String> served) throws IOException {
    return expect(ServiceMessages.Moves.class, ask(new ServiceMessages.AskMoves(epoch, writerId, served))).moves();
  }

  // ---- the end of a batch

  @Override
  public void owes(String run, long batch) throws IOException {
    ask(new ServiceMessages.Owes(checkpoint, writerId, run, batch));
  }

  @Override
  public BatchDebts.Call call(String run, long batch) throws IOException {
    return expect(ServiceMessages.Called.class, ask(new ServiceMessages.AskCall(checkpoint, writerId, run, batch)))
        .call();
  }

  @Override
  public void paid(String run, long batch, String failure) throws IOException {
    ask(new ServiceMessages.Paid(checkpoint, writerId, run, batch, failure));
  }

  private ServiceMessages.Answer ask(ServiceMessages.Question question) throws IOException {
    return accepted(ask(transport, checkpoint, question));
  }

  private ServiceMessages.Answer accepted(ServiceMessages.Answer answer) throws IOException {
    if (answer instanceof ServiceMessages.Refused refused) {
      if (refused.isStale()) {
        onStale.run();
      }
      throw refusal(checkpoint, refused);
    }
    return answer;
  }

  /** The driver's own error where it has one, such as that the state was exported. */
  private static StateStoreFilesException refusal(String checkpoint, ServiceMessages.Refused refused) {
    return refused.id() == null
        ? failed(checkpoint, refused.reason(), null)
        : StateStoreFilesException.of(refused.id(), refused.reason());
  }

  private static ServiceMessages.Answer ask(
      IndexTransport transport, String checkpoint, ServiceMessages.Question question) throws IOException {
    return ServiceMessages.answer(orFailed(checkpoint, () -> transport.ask(ServiceMessages.encode(question))));
  }

  /** A call of the service. */
  private interface Call<T> {
    T get() throws IOException;
  }

  private static <T> T orFailed(String checkpoint, Call<T> call) throws IOException {
    try {
      return call.get();
    } catch (StateStoreFilesException e) {
      throw e;
    } catch (IOException e) {
      if (Threads.saysInterrupted(e)) {
        throw e;
      }
      throw failed(checkpoint, String.valueOf(e.getMessage()), e);
    }
  }

  private <T extends ServiceMessages.Answer> T expect(Class<T> kind, ServiceMessages.Answer answer) throws IOException {
    return expect(kind, answer, checkpoint);
  }

  private static <T extends ServiceMessages.Answer> T expect(
      Class<T> kind, ServiceMessages.Answer answer, String checkpoint) throws IOException {
    if (!kind.isInstance(answer)) {
      throw failed(checkpoint, "it answered another question", null);
    }
    return kind.cast(answer);
  }

  private static StateStoreFilesException failed(String checkpoint, String why, Throwable cause) {
    return new StateStoreFilesException(
        Id.PSS_INDEX_SERVICE_FAILED,
        "The index service in the driver did not answer for "
            + checkpoint
            + ": "
            + why
            + ". Nothing was acknowledged; Spark tries the task again. If this goes on, see what the driver's log says,"
            + " or restart the query with spark.sql.streaming.stateStore.fileMerging.indexService.enabled=false.",
        cause);
  }
}
