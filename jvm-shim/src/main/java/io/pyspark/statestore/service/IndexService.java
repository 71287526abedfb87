package io.pyspark.statestore.service;

import io.pyspark.statestore.clean.Garbage;
import io.pyspark.statestore.index.HybridClock;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.learn.IndexReader;
import io.pyspark.statestore.learn.Learning;
import io.pyspark.statestore.learn.Pins;
import io.pyspark.statestore.learn.Refresher;
import java.io.IOException;
import java.security.SecureRandom;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Answers executors what lives where in one checkpoint, from the full log of the driver's process.
 *
 * <p>Executors report each group before they acknowledge it. So the index of this log has every commit that Spark
 * counts on, and nobody else has to read what others write. Truth stays in the files: the log reads them when a run of
 * the query begins, and cleaning goes on reading the files of those who do not report.
 *
 * <p>The log of this process is the only one that cleans.
 */
public final class IndexService {
  private static final Map<Long, IndexService> BY_EPOCH = new ConcurrentHashMap<>();
  private static final SecureRandom RANDOM = new SecureRandom();

  /** So many files that are gone are remembered at least, and each for {@link #GONE_NANOS}. */
  private static final int GONE = 1_000;

  /** Longer than any message is under way. A report of a file that is gone must not bring its entries back. */
  private static final long GONE_NANOS = 3_600_000_000_000L;

  /**
   * An answer with facts is about so long at most, if one partition is not longer: an array of bytes ends at 2 GiB, and
   * both sides have several copies of a message in memory.
   */
  public static volatile long answerBytes = 32 << 20;

  private final long epoch = RANDOM.nextLong();
  private final Index index;
  private final Rules rules;
  private final HybridClock clock;
  private final Refresher refresher;
  private final Garbage garbage;
  private final IndexReader reader;
  private final Pins pins;
  private final Deque<Gone> gone = new ArrayDeque<>();
  private final Set<String> goneNames = new HashSet<>();
  private final Map<Object, Set<Long>> writersBySender = new HashMap<>();
  private long goneCount;
  private volatile long lastAskedNanos = System.nanoTime();

  private record Gone(long number, String name, long sinceNanos) {}

  public IndexService(Index index, Rules rules, HybridClock clock, Learning learning, Garbage garbage) {
    this.index = index;
    this.rules = rules;
    this.clock = clock;
    this.refresher = learning.refresher();
    this.garbage = garbage;
    this.reader = learning.reader();
    this.pins = learning.pins();
    BY_EPOCH.put(epoch, this);
  }

  /** Ends the service: its log was closed, or its checkpoint was deleted. Whoever asks has to open it anew. */
  public void close() {
    BY_EPOCH.remove(epoch, this);
  }

  /** How long nobody has asked. */
  public long idleMs() {
    return (System.nanoTime() - lastAskedNanos) / 1_000_000;
  }

  /** The answer to {@link ServiceMessages.Open}. */
  public synchronized ServiceMessages.Opened opened() {
    lastAskedNanos = System.nanoTime();
    return new ServiceMessages.Opened(epoch, reader.bornMerged(), clock.newest(), goneCount);
  }

  /**
   * Answers a question about a checkpoint that is open.
   *
   * @param sender the connection over which it came
   */
  public static ServiceMessages.Answer answer(ServiceMessages.OpenQuestion question, Object sender) throws IOException {
    IndexService service = BY_EPOCH.get(question.epoch());
    return service == null ? stale() : service.answerNow(question, sender);
  }

  private ServiceMessages.Answer answerNow(ServiceMessages.OpenQuestion question, Object sender) throws IOException {
    if (question instanceof ServiceMessages.Report report) {
      return report(report, sender);
    } else if (question instanceof ServiceMessages.AskFacts facts) {
      return facts(facts);
    } else if (question instanceof ServiceMessages.Left left) {
      return left(left);
    }
    return moves((ServiceMessages.AskMoves) question);
  }

  private static ServiceMessages.Refused stale() {
    return new ServiceMessages.Refused(
        true, null, "the driver has closed its log of the checkpoint, or has opened it anew");
  }

  /** A connection is lost. What its writers append from now on is not reported. */
  public static void lost(Object sender) {
    BY_EPOCH.values().forEach(service -> service.lostSender(sender));
  }

  private ServiceMessages.Answer report(ServiceMessages.Report report, Object sender) throws IOException {
    lastAskedNanos = System.nanoTime();
    pins.checkUnclaimed();
    synchronized (this) {
      if (goneNames.contains(report.file())) {
        return new ServiceMessages.Refused(false, null, report.file() + " was unlinked before this report of it came");
      }
      writersBySender.computeIfAbsent(sender, s -> new HashSet<>()).add(report.writer());
    }
    clock.observe(report.stamp());
    MergedFile file = index.addIfAbsent(new MergedFile(report.file(), MergedFile.Writer.OTHER, rules.now()));
    file.reported(report.size(), report.trailer(), report.stamp(), report.sealed(), rules.now(), refresher.number());
    return new ServiceMessages.Reported(index.applyReport(file, report.entries()), clock.newest(), index.liveBytes());
  }

  private ServiceMessages.Answer left(ServiceMessages.Left left) {
    clock.observe(left.stamp());
    MergedFile file = index.file(left.file());
    if (file != null) {
      file.isNotReported();
    }
    return new ServiceMessages.Reported(Map.of(), clock.newest(), index.liveBytes());
  }

  private void lostSender(Object sender) {
    Set<Long> writers;
    synchronized (this) {
      writers = writersBySender.remove(sender);
    }
    if (writers != null) {
      index.files().stream().filter(file -> writers.contains(file.writerId())).forEach(MergedFile::isNotReported);
    }
  }

  private ServiceMessages.Answer facts(ServiceMessages.AskFacts question) throws IOException {
    lastAskedNanos = System.nanoTime();
    if (question.filesFirst()) {
      refresher.refresh();
    }
    long goneNow;
    List<String> names;
    synchronized (this) {
      // Before the entries are looked up: what is unlinked meanwhile is told with the next answer.
      goneNow = goneCount;
      long oldest = gone.isEmpty() ? goneCount : gone.peekFirst().number - 1;
      if (question.goneSince() < oldest) {
        return stale();
      }
      names =
          gone.stream()
              .filter(g -> g.number > question.goneSince())
              .map(Gone::name)
              // A checkpoint that was put back from a copy has some of them again.
              .filter(name -> index.file(name) == null)
              .toList();
    }
    List<ServiceMessages.PartitionFacts> changed = new ArrayList<>();
    List<String> left = new ArrayList<>();
    long unsettled;
    do {
      refresher.settle();
      unsettled = refresher.timesUnsettled();
      changed.clear();
      left.clear();
      look(question, changed, left);
    } while (refresher.timesUnsettled() != unsettled);
    return new ServiceMessages.Facts(clock.newest(), index.liveBytes(), goneNow, names, changed, left);
  }

  /**
   * Looks up what has changed.
   *
   * @param left partitions for which the answer has no room; added to
   */
  private void look(
      ServiceMessages.AskFacts question, List<ServiceMessages.PartitionFacts> changed, List<String> left) {
    long bytes = 0;
    for (Map.Entry<String, Long> asked : question.revisions().entrySet()) {
      if (bytes >= answerBytes) {
        left.add(asked.getKey());
        continue;
      }
      ServiceMessages.PartitionFacts facts = partition(asked.getKey(), asked.getValue());
      if (facts != null) {
        changed.add(facts);
        bytes += facts.bytes();
      }
    }
  }

  private ServiceMessages.PartitionFacts partition(String partition, long known) {
    // The revision first: entries that come in between are in the answer, and once more in the next.
    long revision = index.revision(partition);
    if (revision == known) {
      return null;
    }
    List<ServiceMessages.FileFacts> files = new ArrayList<>();
    index
        .entries(partition)
        .forEach(
            (file, entries) ->
                files.add(
                    new ServiceMessages.FileFacts(
                        file.name(),
                        file.size(),
                        file.writer() == MergedFile.Writer.NOBODY,
                        file.foreignFiles(),
                        entries)));
    return new ServiceMessages.PartitionFacts(partition, revision, files);
  }

  private ServiceMessages.Answer moves(ServiceMessages.AskMoves question) {
    Set<String> partitions = Set.copyOf(question.partitions());
    return new ServiceMessages.Moves(garbage.moves(path -> partitions.contains(LogicalPaths.partition(path))));
  }

  /** A file is gone. Executors hear of it with their next answer. */
  public synchronized void gone(String name) {
    long now = System.nanoTime();
    gone.add(new Gone(++goneCount, name, now));
    goneNames.add(name);
    while (gone.size() > GONE && now - gone.peekFirst().sinceNanos > GONE_NANOS) {
      goneNames.remove(gone.removeFirst().name);
    }
  }
}
