package io.pyspark.statestore.fs;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.ShellWord;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.format.PathRules;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Refuses a query that comes to a checkpoint through the wrong door: in the driver, before Spark writes anything there.
 *
 * <p>Spark takes the class that keeps the state from the newest entry of the checkpoint's offset log, whatever the
 * session sets. Spark's own classes find merged files only if the location has a merged scheme.
 */
final class DoorCheck {
  private static final Logger LOG = LoggerFactory.getLogger(DoorCheck.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String PROVIDER_KEY = SQLConf.STATE_STORE_PROVIDER_CLASS().key();
  static final String OWN_PROVIDERS = "io.pyspark.statestore.spark.";
  private static final String REPARTITIONING =
      "org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionRunner";

  private final FileSystem fs;
  private final Path checkpoint;

  /** The class that the session sets. */
  private final String sessionProvider;

  private DoorCheck(FileSystem fs, Path checkpoint, Configuration conf) {
    this.fs = fs;
    this.checkpoint = checkpoint;
    this.sessionProvider = conf.get(PROVIDER_KEY, "");
  }

  /**
   * Checks a query that is about to start at a plain location.
   *
   * @throws IllegalArgumentException if Spark would not find the query's state there
   */
  static void beforeStart(Path checkpoint, Configuration conf) {
    check(checkpoint, conf, DoorCheck::start);
  }

  /** Says of a query that is about to start at a merged location if it has another store than its session. */
  static void beforeMergedStart(Path checkpoint, Configuration conf) {
    check(
        checkpoint,
        conf,
        check -> {
          String inLog = check.providerInOffsetLog();
          if (inLog != null) {
            check.sayWhichStore(inLog);
          }
        });
  }

  /**
   * Checks Spark's offline repartitioning, which adds a batch to the offset log before it checks whether it can read
   * the state.
   *
   * @param offsets the offset log, under the name that Spark was given
   * @throws IllegalArgumentException if it cannot
   */
  static void beforeRepartitioning(Path offsets, Configuration conf) {
    if (isRepartitioning()) {
      boolean merged = Schemes.isMerged(offsets);
      check(Schemes.toReal(offsets).getParent(), conf, check -> check.repartition(merged));
    }
  }

  /** The class that the newest entry of a checkpoint's offset log names; empty if there is none. */
  static String providerIn(Path checkpoint, Configuration conf) throws IOException {
    FileSystem fs = checkpoint.getFileSystem(conf);
    String provider = new DoorCheck(fs, fs.makeQualified(checkpoint), conf).providerInOffsetLog();
    return provider == null ? "" : provider;
  }

  private static boolean isRepartitioning() {
    return StackWalker.getInstance()
        .walk(frames -> frames.anyMatch(frame -> frame.getClassName().startsWith(REPARTITIONING)));
  }

  private interface Rule {
    void apply(DoorCheck check) throws IOException;
  }

  /** Checks what can be read. What cannot be read here Spark cannot read either, and Spark says so. */
  private static void check(Path checkpoint, Configuration conf, Rule rule) {
    try {
      FileSystem fs = checkpoint.getFileSystem(conf);
      rule.apply(new DoorCheck(fs, fs.makeQualified(checkpoint), conf));
    } catch (IOException e) {
      LOG.debug("Could not find out which door {} needs", checkpoint, e);
    }
  }

  private void start() throws IOException {
    String inLog = providerInOffsetLog();
    if (inLog == null) {
      return;
    }
    String provider = inLog.isEmpty() ? sessionProvider : inLog;
    if (isOwn(provider)) {
      if (isOwn(sessionProvider)) {
        sayWhichStore(provider);
      }
      return;
    }
    refuseMerged(provider);
    if (isOwn(sessionProvider) && hasState()) {
      LOG.warn(
          "[{}] The query of {} goes on with {}, and its state is not merged: Spark takes the class from the"
              + " checkpoint's offset log and ignores this session's {}. What to do, once the query is stopped:"
              + " convert the checkpoint (pyspark-statestore convert {} --to merged); or start it with"
              + " checkpointLocation = merged_path(...), that is {}, in a session with configure(mode=\"path\").",
          Id.PSS_STAYS_STOCK,
          checkpoint,
          provider,
          sessionProvider,
          ShellWord.of(checkpoint),
          Schemes.toMerged(checkpoint));
    }
  }

  /** Another store than the session's is no failure: one session may run queries with either. */
  private void sayWhichStore(String provider) {
    String store = storeOf(provider);
    String asked = storeOf(sessionProvider);
    if (!store.isEmpty() && !asked.isEmpty() && !store.equals(asked)) {
      LOG.warn(
          "[{}] The query of {} goes on with its {} store: Spark takes the class from the checkpoint's offset log and"
              + " ignores that this session asks for {}. What to do: pass store=\"{}\" to configure(); or, for the"
              + " other store, stop the query and convert the checkpoint (pyspark-statestore convert {} --store {})",
          Id.PSS_KEEPS_STORE,
          checkpoint,
          store,
          asked,
          store,
          ShellWord.of(checkpoint),
          asked);
    }
  }

  /** As Python's {@code store_of}; empty for a class that is neither Spark's nor ours. */
  private static String storeOf(String provider) {
    return provider.endsWith("RocksDBStateStoreProvider")
        ? "rocksdb"
        : provider.endsWith("HDFSBackedStateStoreProvider") ? "heap" : "";
  }

  private void repartition(boolean byMergedName) throws IOException {
    String inLog = providerInOffsetLog();
    if (inLog == null) {
      return;
    }
    String provider = inLog.isEmpty() ? sessionProvider : inLog;
    if (isOwn(provider)) {
      throw refusal(
          Id.PSS_CANNOT_REPARTITION,
          "Spark's offline repartitioning knows the state of Spark's own classes only,"
              + " and "
              + checkpoint
              + " has "
              + provider
              + ". Nothing was written. "
              + (provider.contains("RocksDB")
                  ? "Use pyspark-statestore repartition "
                      + ShellWord.of(checkpoint)
                      + " --partitions N instead, or"
                      + " Checkpoint(...).repartition(N, spark=spark)."
                  : "It does not know heap stores at all."));
    }
    if (!byMergedName) {
      refuseMerged(provider);
    }
  }

  private void refuseMerged(String provider) throws IOException {
    if (isMerged()) {
      throw refusal(
          Id.PSS_WRONG_DOOR,
          checkpoint
              + " has its state in merged files, and "
              + provider
              + " would not find"
              + " them under this name. Nothing was changed, and nothing has to be cleared. Start the query with"
              + " checkpointLocation = merged_path(...), that is "
              + Schemes.toMerged(checkpoint)
              + ". Or stop using the path"
              + " door: pyspark-statestore convert "
              + ShellWord.of(checkpoint)
              + " --to merged lets this location be used by sessions with"
              + " configure(), pyspark-statestore export "
              + ShellWord.of(checkpoint)
              + " by stock Spark.");
    }
  }

  /** An exception whose message PySpark shows without a JVM stack trace. */
  private static IllegalArgumentException refusal(Id id, String message) {
    return new IllegalArgumentException(new StateStoreFilesException(id, message).getMessage());
  }

  private static boolean isOwn(String provider) {
    return provider.startsWith(OWN_PROVIDERS);
  }

  /** The class in the newest entry of the offset log; empty if the entry names none, null if there is no entry. */
  private String providerInOffsetLog() throws IOException {
    Path newest = null;
    long batch = -1;
    for (FileStatus entry : list(new Path(checkpoint, "offsets"))) {
      String name = entry.getPath().getName();
      if (name.matches("\\d{1,18}") && Long.parseLong(name) > batch) {
        batch = Long.parseLong(name);
        newest = entry.getPath();
      }
    }
    return newest == null ? null : provider(newest);
  }

  private String provider(Path entry) throws IOException {
    try (FSDataInputStream in = fs.open(entry)) {
      String[] lines = new String(in.readAllBytes(), StandardCharsets.UTF_8).split("\n", 3);
      return lines.length < 2 ? "" : JSON.readTree(lines[1]).path("conf").path(PROVIDER_KEY).asText("");
    } catch (JsonProcessingException e) {
      return "";
    }
  }

  /** Whether the state is in merged files. After a finished export it is in plain files, even if merged ones remain. */
  private boolean isMerged() throws IOException {
    boolean any = false;
    for (FileStatus file : list(new Path(checkpoint, "state/_merged"))) {
      String ending = PathRules.ending(file.getPath().getName());
      if (ending.equals(".exported") || ending.equals(".dropping")) {
        return false;
      }
      any |= ending.equals(".merged") || ending.equals(".index.merged");
    }
    return any;
  }

  private boolean hasState() throws IOException {
    for (FileStatus child : list(new Path(checkpoint, "state"))) {
      if (child.isDirectory() && child.getPath().getName().matches("\\d+")) {
        return true;
      }
    }
    return false;
  }

  private FileStatus[] list(Path directory) throws IOException {
    try {
      return fs.listStatus(directory);
    } catch (FileNotFoundException e) {
      return new FileStatus[0];
    }
  }
}
