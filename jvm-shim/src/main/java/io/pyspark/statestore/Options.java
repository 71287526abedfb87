package io.pyspark.statestore;

import io.pyspark.statestore.StateStoreFilesException.Id;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/**
 * The options, all of them under {@link #PREFIX}. The Python package declares the same in {@code
 * pyspark_statestore.conf}; a test compares the two lists.
 *
 * @param maxFileSize bytes after which a merged file is sealed
 * @param maxOpenFiles the most lanes of a process and checkpoint
 * @param maxSpaceAmplification the ratio of physical to live bytes that cleaning aims to stay below
 * @param compactionEnabled whether maintenance reclaims space
 * @param hsync whether a commit waits for the disk (hsync) and not only for the data nodes (hflush)
 * @param groupCommitMaxWaitMs how long a commit may wait for others to join its group; -1 is automatic
 * @param groupCommitOfBatch whether what the tasks of a batch commit becomes durable when the batch ends
 * @param closedAfterMs how long another process's unsealed file must not change to count as closed (rule 7)
 * @param cacheSizeLimit bytes of SSTs that are kept on the host's disk for all its executors; 0 keeps none
 * @param cacheDir where they are kept; empty for a directory of the user's where Java keeps temporary files
 * @param restore whether a load waits for all of its SSTs
 * @param restoreMaxBytesPerSecond how fast a process fetches in the background what a load has left out; 0: no bound
 * @param localSizeLimit bytes of SSTs that the stores of a process have on its disk, where {@code restore} is remote
 * @param lookAheadRows how many rows of a stateful operator's input are copied ahead of it at a time, at most; 0: none
 * @param lookAheadBytes how many bytes of them are in memory, for each task
 * @param lookAheadParallelism requests of a task for state ahead of its reads, at the same time
 * @param uploadAsCreated whether SSTs are uploaded when RocksDB has made them, and not with the snapshot that names
 *     them
 * @param uploadMaxBytesPerSecond how fast a process uploads them for a checkpoint; 0: no bound
 * @param heapCopyOnWrite whether versions of a heap store share what did not change between them
 * @param heapSpill whether heap stores move rows to the local disk where memory is short
 * @param heapSpillHighWaterMark which part of the heap is to be used before they do
 * @param heapSpillLowWaterMark which part is used when they have
 * @param indexService whether executors learn from the driver what others have written, and not from the files
 * @param rebalance whether stores move to executors that have less to do
 * @param fileManagerClass the manager of files that are not state; empty for Spark's own choice
 * @param shimVersion the version that the Python package expects; empty skips the check
 */
public record Options(
    long maxFileSize,
    int maxOpenFiles,
    double maxSpaceAmplification,
    boolean compactionEnabled,
    boolean hsync,
    long groupCommitMaxWaitMs,
    boolean groupCommitOfBatch,
    long closedAfterMs,
    long cacheSizeLimit,
    String cacheDir,
    Restore restore,
    long restoreMaxBytesPerSecond,
    long localSizeLimit,
    int lookAheadRows,
    long lookAheadBytes,
    int lookAheadParallelism,
    boolean uploadAsCreated,
    long uploadMaxBytesPerSecond,
    boolean heapCopyOnWrite,
    boolean heapSpill,
    double heapSpillHighWaterMark,
    double heapSpillLowWaterMark,
    boolean indexService,
    boolean rebalance,
    String fileManagerClass,
    String shimVersion) {
  public static final String PREFIX = "spark.sql.streaming.stateStore.fileMerging.";

  /** Whether a load waits for all of its SSTs. */
  public enum Restore {
    /** It does. */
    EAGER,
    /** It needs their ends only; the rest is fetched when it is read, and in the background. */
    LAZY,
    /** As lazy, without the background. */
    ONDEMAND,
    /** As on demand, and what is not read often goes again where there is no room. */
    REMOTE
  }

  private static final long LONGEST_IDLE_MS = 60_000;

  private static final Map<String, String> DEFAULTS = new LinkedHashMap<>();

  static {
    DEFAULTS.put("maxFileSize", "128m");
    DEFAULTS.put("maxOpenFiles", "4");
    DEFAULTS.put("maxSpaceAmplification", "2.0");
    DEFAULTS.put("compaction.enabled", "true");
    DEFAULTS.put("flush", "hflush");
    DEFAULTS.put("groupCommit.maxWait", "auto");
    DEFAULTS.put("groupCommit.scope", "task");
    DEFAULTS.put("closedAfter", "10m");
    DEFAULTS.put("cache.sizeLimit", "10g");
    DEFAULTS.put("cache.dir", "");
    DEFAULTS.put("restore", "eager");
    DEFAULTS.put("restore.maxBytesPerSecond", "64m");
    DEFAULTS.put("local.sizeLimit", "10g");
    DEFAULTS.put("lookAhead.rows", "8192");
    DEFAULTS.put("lookAhead.bytes", "16m");
    DEFAULTS.put("lookAhead.parallelism", "16");
    DEFAULTS.put("upload", "commit");
    DEFAULTS.put("upload.maxBytesPerSecond", "64m");
    DEFAULTS.put("heap.copyOnWrite", "true");
    DEFAULTS.put("heap.spill", "off");
    DEFAULTS.put("heap.spill.highWaterMark", "0.6");
    DEFAULTS.put("heap.spill.lowWaterMark", "0.5");
    DEFAULTS.put("indexService.enabled", "true");
    DEFAULTS.put("rebalance", "off");
    DEFAULTS.put("fileManagerClass", "");
    DEFAULTS.put("shimVersion", "");
  }

  private static final Map<String, String> REMOVED = new LinkedHashMap<>();

  static {
    REMOVED.put("bufferMemory", "8 MiB are kept in memory, and more goes to the local disk");
    REMOVED.put("idleSeal", "a file is sealed after a minute without a commit, or a tenth of a shorter closedAfter");
    REMOVED.put("readParallelism", "a load reads eight ranges at the same time");
    REMOVED.put("verifyChecksums", "what is read whole is always checked");
  }

  /** Every option's name, without the prefix, and its default: the Python package declares the same. */
  public static Map<String, String> defaults() {
    return new LinkedHashMap<>(DEFAULTS);
  }

  /** The names of options that there are no more, and what the program does instead: Python says the same. */
  public static Map<String, String> removed() {
    return new LinkedHashMap<>(REMOVED);
  }

  /** Reads and checks what is set under the prefix. */
  public static Options from(Configuration conf) throws StateStoreFilesException {
    return parse(OptionTexts.below(PREFIX, DEFAULTS, REMOVED, conf));
  }

  /** Refuses to work with another version of the Python package than the jar's. */
  public void checkPackage() throws StateStoreFilesException {
    if (!shimVersion.isEmpty() && !shimVersion.equals(ShimInfo.version())) {
      throw new StateStoreFilesException(
          Id.PSS_VERSION_MISMATCH,
          "The Python package is pyspark_statestore "
              + shimVersion
              + " but the jar on the class path is "
              + ShimInfo.version()
              + ". Remove the other jar from spark.jars and the class path, or install the matching package.");
    }
  }

  /**
   * How long a file may go without an append; then it is sealed, or never appended to again (rule 7): a tenth of {@code
   * closedAfter}, and a minute at most, since other processes may have been told another {@code closedAfter}. Others
   * count the file as closed only after all of that, so nine tenths are left for a writer that looked at its clock in
   * time and is slow from there on; it gives up where five tenths have passed.
   */
  public long idleSealMs() {
    return Math.min(LONGEST_IDLE_MS, closedAfterMs / 10);
  }

  /** Whether the shim chooses how long commits wait for others, by the file system. */
  public boolean groupCommitIsAutomatic() {
    return groupCommitMaxWaitMs < 0;
  }

  private static Restore restore(OptionTexts given) throws StateStoreFilesException {
    for (Restore each : Restore.values()) {
      if (each.name().equalsIgnoreCase(given.text("restore"))) {
        return each;
      }
    }
    throw given.invalid("restore", "eager, lazy, ondemand or remote");
  }

  private static Options parse(OptionTexts given) throws StateStoreFilesException {
    String flush = given.text("flush").toLowerCase(Locale.ROOT);
    if (!flush.equals("hflush") && !flush.equals("hsync")) {
      throw given.invalid("flush", "hflush or hsync");
    }
    String wait = given.text("groupCommit.maxWait");
    String scope = given.text("groupCommit.scope").toLowerCase(Locale.ROOT);
    if (!scope.equals("task") && !scope.equals("batch")) {
      throw given.invalid("groupCommit.scope", "task or batch");
    }
    String upload = given.text("upload").toLowerCase(Locale.ROOT);
    if (!upload.equals("commit") && !upload.equals("created")) {
      throw given.invalid("upload", "commit or created");
    }
    String rebalance = given.text("rebalance").toLowerCase(Locale.ROOT);
    if (!rebalance.equals("off") && !rebalance.equals("auto")) {
      throw given.invalid("rebalance", "off or auto");
    }
    String spill = given.text("heap.spill").toLowerCase(Locale.ROOT);
    if (!spill.equals("off") && !spill.equals("auto")) {
      throw given.invalid("heap.spill", "off or auto");
    }
    return new Options(
        given.bytes("maxFileSize", "a size in bytes such as 128m, at least 64k", 64 << 10),
        (int) given.number("maxOpenFiles", 1, 64, "a whole number from 1 to 64"),
        given.number("maxSpaceAmplification", 1.05, 1000, "a number from 1.05 to 1000"),
        given.bool("compaction.enabled"),
        flush.equals("hsync"),
        wait.equals("auto") ? -1 : given.millis("groupCommit.maxWait", "auto or a duration such as 10ms", 0),
        scope.equals("batch"),
        given.millis("closedAfter", "a duration such as 10m, at least 5s", 5000),
        given.bytes("cache.sizeLimit", "a size in bytes such as 10g, or 0", 0),
        given.text("cache.dir"),
        restore(given),
        given.bytes("restore.maxBytesPerSecond", "a size in bytes such as 64m, or 0", 0),
        given.bytes("local.sizeLimit", "a size in bytes such as 10g, at least 16m", 16 << 20),
        (int) given.number("lookAhead.rows", 0, 1_000_000, "a whole number from 0 to 1000000"),
        given.bytes("lookAhead.bytes", "a size in bytes such as 16m, at least 64k", 64 << 10),
        (int) given.number("lookAhead.parallelism", 1, 256, "a whole number from 1 to 256"),
        upload.equals("created"),
        given.bytes("upload.maxBytesPerSecond", "a size in bytes such as 64m, or 0", 0),
        given.bool("heap.copyOnWrite"),
        spill.equals("auto"),
        given.number("heap.spill.highWaterMark", 0.05, 0.95, "a number from 0.05 to 0.95"),
        given.number("heap.spill.lowWaterMark", 0.05, 0.95, "a number from 0.05 to 0.95"),
        given.bool("indexService.enabled"),
        rebalance.equals("auto"),
        given.text("fileManagerClass"),
        given.text("shimVersion"));
  }
}
