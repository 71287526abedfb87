package io.pyspark.statestore.fs;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.pyspark.statestore.Options;
import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.format.Checksum;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import io.pyspark.statestore.write.ProcessFacts;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a run of a query leaves in {@code _merged/} so that other processes know whether it goes on: an empty file
 * {@code *.running} from before its first batch on, and in its place a file {@code *.ended} once nothing of it writes
 * any more but what belongs to versions that are there. Python's {@code log/ended} says who may believe that.
 *
 * <p>A run that begins takes away what others have left. So a run whose own file is gone knows that another one has
 * begun, and says nothing when it ends; and the end of an earlier run, said late, never stands alone. Where that
 * happens while a run is about to begin, the other may have ended by then, so it says it again.
 */
final class RunFiles {
  private static final Logger LOG = LoggerFactory.getLogger(RunFiles.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  private static final String OFFSETS = "offsets";
  private static final String COMMITS = "commits";
  private static final Set<String> LOGS = Set.of(OFFSETS, COMMITS);
  private static final Pattern BATCH = Pattern.compile("\\d{1,18}");
  private static final int KEPT = 1000;

  /** What was just made is mostly seen at once. */
  private static final int MOST_TIMES_AGAIN = 3;

  /** Names of the files {@code *.running} that this process has made last. */
  private static final Deque<String> MADE = new ArrayDeque<>();

  private final Path checkpoint;
  private final FileSystem fs;
  private final Storage storage;
  private final WriterIdentity names = new WriterIdentity(Map::of, () -> false);
  private final long sinceMs;

  /** By log, the last batch that the run has entered. */
  private final Map<String, Long> entered = new HashMap<>();

  private boolean hasTried;

  /** Name of its file {@code *.running}, which it has made or tried to make; null where it did not try. */
  private String running;

  private Options options;
  private ProcessFacts process;

  /**
   * Of a run that is about to begin.
   *
   * @param checkpoint qualified real path
   * @param sinceMs when it was about to begin, by the clock by which Spark says when it began
   */
  RunFiles(Path checkpoint, Configuration conf, long sinceMs) throws IOException {
    this.checkpoint = checkpoint;
    this.sinceMs = sinceMs;
    this.fs = checkpoint.getFileSystem(conf);
    this.storage = new Storage(fs, new Path(checkpoint, "state"));
  }

  /** See {@link RunEnds#filesOfRuns}. */
  static List<String> made() {
    synchronized (MADE) {
      return List.copyOf(MADE);
    }
  }

  /** When the run was about to begin. */
  long sinceMs() {
    return sinceMs;
  }

  /**
   * Says that the run goes on, and takes away what earlier runs have said. A checkpoint without merged files gets
   * nothing: {@link #entered} says it there, when it has some. Nor does one that was exported, where stock Spark's
   * class keeps the state.
   *
   * @throws StateStoreFilesException PSS_WRITE_FAILED, where others would go on believing that the query has ended
   */
  synchronized void begin(Configuration conf) throws IOException {
    Storage.OfRuns earlier;
    try {
      earlier = storage.ofRuns();
    } catch (FileNotFoundException e) {
      return;
    }
    hasTried = true;
    boolean isSaid = !earlier.isExported() && sayRunning(conf);
    for (String other : earlier.names()) {
      try {
        storage.delete(other);
      } catch (IOException | RuntimeException e) {
        if (isSaid || other.endsWith(Storage.RUNNING_SUFFIX)) {
          // Nobody believes an end beside a run that goes on, or that was killed.
          LOG.info("Could not delete {}, which an earlier run has left in {}", other, storage.directory(), e);
          continue;
        }
        throw new StateStoreFilesException(
            Id.PSS_WRITE_FAILED,
            storage.path(other)
                + " says that the query has ended, and cannot be deleted: "
                + e.getMessage()
                + ". Others would change the checkpoint while the query runs. Allow the driver to write there.",
            e);
      }
    }
    for (int again = 0; isSaid && again < MOST_TIMES_AGAIN && !isThere(running); again++) {
      isSaid = sayRunning(conf);
    }
  }

  /** Whether a file is there; also where that cannot be said. */
  private boolean isThere(String name) {
    try {
      return storage.exists(name);
    } catch (IOException | RuntimeException e) {
      LOG.info("Could not see whether {} is there", storage.path(name), e);
      return true;
    }
  }

  /** Whether it is known to be said. */
  private boolean sayRunning(Configuration conf) {
    String name = names.nextFileName(Clocks.wallMs(), Storage.RUNNING_SUFFIX);
    try {
      options = Options.from(conf);
      process = ProcessIdentity.facts("", conf);
      synchronized (MADE) {
        MADE.add(name);
        while (MADE.size() > KEPT) {
          MADE.removeFirst();
        }
      }
      // Who stops a query interrupts this thread, perhaps when the file is there already: the end looks for it.
      running = name;
      storage.createEmpty(name);
      return true;
    } catch (IOException | RuntimeException e) {
      LOG.warn(
          "Could not say in {} that a run of its query goes on, so its end may not be said either. What to do: allow"
              + " the driver to write there; until then commands that need a stopped query wait for closedAfter",
          storage.directory(),
          e);
      return false;
    }
  }

  /** Whether a file is an entry of the logs by which Spark keeps two drivers from each other's batches. */
  static boolean isEntry(String log, String name) {
    return LOGS.contains(log) && BATCH.matcher(name).matches();
  }

  /** The run has entered a batch. When it has committed one, it may have merged files, if it had none before. */
  synchronized void entered(String log, long batch, Configuration conf) throws IOException {
    entered.put(log, batch);
    if (!hasTried && log.equals(COMMITS)) {
      hasTried = true;
      begin(conf);
    }
  }

  /** Whether a batch was begun and not committed, whose tasks may still write. */
  boolean hasOpenBatch() throws IOException {
    return newest(OFFSETS) != newest(COMMITS);
  }

  /** How long a process waits at most before it counts what others have begun as given up. */
  synchronized long patienceMs() {
    return options == null ? 0 : options.closedAfterMs();
  }

  /**
   * Says that the run has ended, unless another one has begun: then its file is there, or the log goes on with a batch
   * that is not this run's. Who has begun is looked for last, when all is read that will be named.
   *
   * @return whether it was said
   */
  synchronized boolean end(String query, String run, String application) throws IOException {
    if (running == null) {
      return false;
    }
    Map<String, Long> writers = writers();
    long planned = newest(OFFSETS);
    long batch = newest(COMMITS);
    boolean isLast = entered.getOrDefault(OFFSETS, planned) == planned && entered.getOrDefault(COMMITS, batch) == batch;
    List<String> left;
    try {
      left = storage.ofRuns().names();
    } catch (FileNotFoundException e) {
      return false;
    }
    String own = running;
    running = null;
    if (!left.contains(own)) {
      return false;
    }
    boolean isAlone = isLast && left.stream().allMatch(each -> each.equals(own) || each.endsWith(Storage.ENDED_SUFFIX));
    if (isAlone) {
      long now = Clocks.wallMs();
      byte[] said = encoded(query, run, application, batch, planned, now, writers);
      storage.write(names.nextFileName(now, Storage.ENDED_SUFFIX), said);
    }
    storage.delete(own);
    for (String other : left) {
      if (isAlone && !other.equals(own)) {
        storage.delete(other);
      }
    }
    return isAlone;
  }

  /** The newest group of each process that has written merged files which are there, by its stamp. */
  private Map<String, Long> writers() throws IOException {
    Path state = storage.stateDirectory();
    MergedLog log = MergedLogs.open(state);
    if (log == null) {
      FileSystem real = MergedFileSystem.of(Schemes.toMerged(state), fs.getConf()).real();
      log = MergedLogs.of(real, state, options, process, null, "", "");
    }
    log.refresh();
    Map<String, Long> newest = new TreeMap<>();
    for (MergedFile file : log.index().files()) {
      // Of a file that an index-only file speaks for, only its entries' stamps are known.
      long stamp = file.groupStamp() > 0 || !file.wholeIndexRead() ? file.groupStamp() : file.lastStamp();
      newest.merge(String.format("%016x", file.writerId()), stamp, Math::max);
    }
    return newest;
  }

  private long newest(String log) throws IOException {
    long newest = -1;
    FileStatus[] entries;
    try {
      entries = fs.listStatus(new Path(checkpoint, log));
    } catch (FileNotFoundException e) {
      return newest;
    }
    for (FileStatus entry : entries) {
      String name = entry.getPath().getName();
      if (BATCH.matcher(name).matches()) {
        newest = Math.max(newest, Long.parseLong(name));
      }
    }
    return newest;
  }

  /** What the file says. Its checksum tells whether all of it is there; Python computes the same. */
  static byte[] encoded(
      String query, String run, String application, long batch, long planned, long endedMs, Map<String, Long> writers) {
    ObjectNode said = JSON.createObjectNode();
    said.put("query", query).put("run", run).put("app_id", application);
    said.put("batch", batch).put("planned", planned).put("ended_ms", endedMs);
    ObjectNode stamps = said.putObject("writers");
    StringBuilder checked = new StringBuilder();
    checked.append(query).append('\n').append(run).append('\n').append(application).append('\n');
    checked.append(batch).append('\n').append(planned).append('\n').append(endedMs);
    new TreeMap<>(writers)
        .forEach(
            (writer, stamp) -> {
              stamps.put(writer, stamp);
              checked.append('\n').append(writer).append(' ').append(stamp);
            });
    byte[] bytes = checked.toString().getBytes(StandardCharsets.UTF_8);
    said.put("crc32c", Checksum.crc32c(bytes, 0, bytes.length) & 0xffffffffL);
    said.put("shim", ShimInfo.version());
    return said.toString().getBytes(StandardCharsets.UTF_8);
  }
}
