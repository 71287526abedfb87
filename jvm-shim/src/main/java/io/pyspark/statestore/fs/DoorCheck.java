package io.pyspark.statestore.fs;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
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
 * Looks at a checkpoint in the driver, before Spark writes anything there, and says which door it wants.
 *
 * <p>Spark takes the class that keeps the state from the newest entry of the checkpoint's offset log, whatever the session
 * has. Its own classes know nothing of merged files unless the location says merged.
 */
final class DoorCheck {
  private static final Logger LOG = LoggerFactory.getLogger(DoorCheck.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String PROVIDER_KEY = SQLConf.STATE_STORE_PROVIDER_CLASS().key();
  private static final String OWN_PROVIDERS = "io.pyspark.statestore.spark.";
  private static final String REPARTITIONING =
      "org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionRunner";

  private final FileSystem fs;
  private final Path checkpoint;
  private final String sessions;

  private DoorCheck(FileSystem fs, Path checkpoint, Configuration conf) {
    this.fs = fs;
    this.checkpoint = checkpoint;
    this.sessions = conf.get(PROVIDER_KEY, "");
  }

  /**
   * For a query that is about to start at a plain location.
   *
   * @throws IllegalArgumentException where its state would not be found there
   */
  static void beforeStart(Path checkpoint, Configuration conf) {
    quietly(checkpoint, conf, DoorCheck::start);
  }

  /**
   * For Spark's offline repartitioning, which enters a batch in the offset log before it looks whether it knows the state.
   *
   * @param offsets the log, under the name that Spark was given
   * @throws IllegalArgumentException where it does not
   */
  static void beforeRepartitioning(Path offsets, Configuration conf) {
    if (isRepartitioning()) {
      boolean merged = Schemes.isMerged(offsets);
      quietly(Schemes.toReal(offsets).getParent(), conf, check -> check.repartition(merged));
    }
  }

  private static boolean isRepartitioning() {
    return StackWalker.getInstance().walk(
        frames -> frames.anyMatch(frame -> frame.getClassName().startsWith(REPARTITIONING)));
  }

  private interface Question {
    void ask(DoorCheck check) throws IOException;
  }

  /** What cannot be read here Spark will not be able to read either, and says so. */
  private static void quietly(Path checkpoint, Configuration conf, Question question) {
    try {
      FileSystem fs = checkpoint.getFileSystem(conf);
      question.ask(new DoorCheck(fs, fs.makeQualified(checkpoint), conf));
    } catch (IOException e) {
      LOG.debug("Which door {} wants cannot be told", checkpoint, e);
    }
  }

  private void start() throws IOException {
    String noted = notedProvider();
    if (noted == null) {
      return;
    }
    String provider = noted.isEmpty() ? sessions : noted;
    if (isOwn(provider)) {
      return;
    }
    refuseMerged(provider);
    if (isOwn(sessions) && hasState()) {
      LOG.warn("[{}] The query of {} goes on with {}, and its state is not merged: Spark takes the class from the"
              + " checkpoint's offset log and ignores this session's {}. Two ways in, once the query is stopped:"
              + " convert the checkpoint, with pyspark-statestore convert {} --to merged; or start it with"
              + " checkpointLocation = merged_path(...), that is {}, in a session with configure(mode=\"path\").",
          Id.PSS_STAYS_STOCK, checkpoint, provider, sessions, checkpoint, Schemes.toMerged(checkpoint));
    }
  }

  private void repartition(boolean byMergedName) throws IOException {
    String noted = notedProvider();
    if (noted == null) {
      return;
    }
    String provider = noted.isEmpty() ? sessions : noted;
    if (isOwn(provider)) {
      throw refusal(Id.PSS_CANNOT_REPARTITION, "Spark's offline repartitioning knows the state of Spark's own classes only,"
          + " and " + checkpoint + " has " + provider + ". Nothing was written. Let the query go through the path door:"
          + " pyspark-statestore convert " + checkpoint + " --to merged --door path; then repartition "
          + Schemes.toMerged(checkpoint) + ". To come back afterwards: pyspark-statestore convert " + checkpoint
          + " --to merged.");
    }
    if (!byMergedName) {
      refuseMerged(provider);
    }
  }

  private void refuseMerged(String provider) throws IOException {
    if (isMerged()) {
      throw refusal(Id.PSS_WRONG_DOOR, checkpoint + " has its state in merged files, and " + provider + " would not find"
          + " them under this name. Nothing was changed, and nothing has to be cleared. Start the query with"
          + " checkpointLocation = merged_path(...), that is " + Schemes.toMerged(checkpoint) + ". Or stop using the path"
          + " door: pyspark-statestore convert " + checkpoint + " --to merged lets this location be used by sessions with"
          + " configure(), pyspark-statestore export " + checkpoint + " by stock Spark.");
    }
  }

  /** Of all exceptions, PySpark shows this one's message without a JVM stack trace. */
  private static IllegalArgumentException refusal(Id id, String message) {
    return new IllegalArgumentException(new StateStoreFilesException(id, message).getMessage());
  }

  private static boolean isOwn(String provider) {
    return provider.startsWith(OWN_PROVIDERS);
  }

  /** The class in the newest entry of the offset log; empty where that leaves it to the session, null without a log. */
  private String notedProvider() throws IOException {
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

  /** Whether merged files are what counts: an export that is done has written all of them back. */
  private boolean isMerged() throws IOException {
    boolean any = false;
    for (FileStatus file : list(new Path(checkpoint, "state/_merged"))) {
      String name = file.getPath().getName();
      if (name.endsWith(".exported") || name.endsWith(".dropping")) {
        return false;
      }
      any |= name.endsWith(".merged");
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
