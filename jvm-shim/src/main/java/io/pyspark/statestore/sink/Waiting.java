package io.pyspark.statestore.sink;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.paths.SparkPath;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Rows of committed batches that no reader sees yet, because they are too few for a file ({@code maxDelay}).
 *
 * <pre>
 * sink/_spark_metadata/_waiting/p=1/part-00000-….parquet    rows that wait
 * sink/_spark_metadata/_waiting/7-&lt;random&gt;.json            manifest: which files wait after batch 7
 * sink/_spark_metadata/7                                     Spark's list: the files of the batch, and that manifest
 * </pre>
 *
 * <p><b>What commits.</b> The list names the manifest as a directory, which readers pass over (Spark: {@code
 * MetadataLogFileIndex}). So one atomic addition says which files are published and which wait: a row is in one of the
 * two, never in both. The newest manifest that the list names counts; those of attempts that failed are named by none.
 * Each batch names one as long as anything waits, and one more when that ends.
 *
 * <p><b>What is deleted, and why that is safe.</b> A file that waits is copied when it is due, never moved: an attempt
 * that fails leaves it as it was. It is deleted when the list names a manifest without it. What attempts that failed
 * have left goes when it is older than a day and the manifest that counts does not name it.
 */
final class Waiting {
  private static final Logger LOG = LoggerFactory.getLogger(Waiting.class);
  private static final Pattern PART = Pattern.compile("(\\d{1,18})(\\.compact)?");
  private static final Pattern MANIFEST = Pattern.compile("(\\d{1,18})-[0-9a-f]+\\.json");
  private static final ObjectMapper JSON =
      new ObjectMapper()
          .enable(DeserializationFeature.FAIL_ON_READING_DUP_TREE_KEY, DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  /** What this process has committed last, by sink, so that batches need not read the list. */
  private static final Map<Path, Waiting> COMMITTED = new ConcurrentHashMap<>();

  private final long batch;
  private final Path manifest;
  private final String form;
  private final List<Rows> rows;

  /**
   * A file that waits.
   *
   * @param root the directory of what waits below the sink's, one of those of {@link SinkPlaces}
   * @param path below that
   * @param size in bytes
   * @param sinceMs when its rows began to wait, in milliseconds since 1970
   */
  record Rows(String root, String path, long size, long sinceMs) {
    String directory() {
      return path.contains("/") ? path.substring(0, path.lastIndexOf('/')) : "";
    }

    /** Whether the delay is over; also where a clock was set back by more than that. */
    boolean isDue(long nowMs, long maxDelayMs) {
      return Math.abs(nowMs - sinceMs) >= maxDelayMs;
    }

    FileStatus status(Path sink) {
      return new FileStatus(size, false, 1, 0, sinceMs, SinkPaths.inside(new Path(sink, root), path));
    }

    /** Whether they are where manifests are written to: those that are not are published with the next batch. */
    boolean mayGoOn() {
      return root.equals(SinkPlaces.WAITING);
    }
  }

  /**
   * @param batch after which this is so
   * @param manifest that says so; null where nothing ever waited
   * @param form of the files: {@link io.pyspark.statestore.sink.join.WrittenFormat#form}
   */
  Waiting(long batch, Path manifest, String form, List<Rows> rows) {
    this.batch = batch;
    this.manifest = manifest;
    this.form = form;
    this.rows = rows;
  }

  /**
   * What waits before a batch. The list decides that, not what this process remembers: {@code Sink.publish} may have
   * published it since, and may have died before it did anything else than to say so in the list.
   */
  static Waiting before(FileSystem fs, Path sink, long batch) throws IOException {
    Waiting known = COMMITTED.get(sink);
    boolean counts =
        known != null
            && known.batch == batch - 1
            && (known.isEmpty() ? known.isStillEmpty(fs, sink) : known.isNamed(fs, sink) && fs.exists(known.manifest));
    return counts ? known : listed(fs, sink);
  }

  /** Whether nobody has written another manifest since: another driver may have repeated the batch before. */
  private boolean isStillEmpty(FileSystem fs, Path sink) throws IOException {
    if (!mayWait(fs, sink)) {
      return true;
    }
    Path named = newestNamed(fs, sink);
    return manifest == null ? named == null : named != null && named.getName().equals(manifest.getName());
  }

  private static boolean mayWait(FileSystem fs, Path sink) throws IOException {
    boolean mayWait = false;
    for (String root : SinkPlaces.ALL_WAITING) {
      mayWait |= fs.exists(new Path(sink, root));
    }
    return mayWait;
  }

  /** Refuses to publish what somebody else has published since this was read, right before the list is added to. */
  void checkStillCounts(FileSystem fs, Path sink) throws IOException {
    if (!isEmpty() && !isNamed(fs, sink)) {
      throw new StateStoreFilesException(
          Id.PSS_SINK_COMPACTION_FAILED,
          "What waited in "
              + sink
              + " was published meanwhile, as Sink.publish does it."
              + " Nothing of the batch was published. Restart the query, and do not call publish while it runs.");
    }
  }

  private boolean isNamed(FileSystem fs, Path sink) throws IOException {
    Path named = newestNamed(fs, sink);
    return named != null && named.getName().equals(manifest.getName());
  }

  /** The same after a batch that changed nothing. */
  Waiting after(long later) {
    return new Waiting(later, manifest, form, rows);
  }

  /** The batch that wrote this is committed. */
  void committed(Path sink) {
    COMMITTED.put(sink, this);
  }

  boolean isEmpty() {
    return rows.isEmpty();
  }

  List<Rows> rows() {
    return rows;
  }

  long bytes() {
    return rows.stream().mapToLong(Rows::size).sum();
  }

  /** Whether rows of another form may go into one file with these. */
  boolean hasForm(String other) {
    return form.equals(other);
  }

  /** The manifest as the list names it. */
  FileStatus listed() {
    return new FileStatus(0, true, 0, 0, System.currentTimeMillis(), manifest);
  }

  static boolean holds(Path sink, Path file) {
    return SinkPlaces.ALL_WAITING.stream().anyMatch(root -> SinkPaths.isBelow(new Path(sink, root), file));
  }

  /** Writes a manifest, which does not count before the list names it. */
  static Waiting write(FileSystem fs, Path sink, long batch, String form, List<Rows> rows) throws IOException {
    String name = String.format("%d-%016x.json", batch, ThreadLocalRandom.current().nextLong());
    ObjectNode root = JSON.createObjectNode().put("batch", batch).put("form", form);
    ArrayNode files = root.putArray("files");
    rows.forEach(r -> files.addObject().put("path", r.path()).put("size", r.size()).put("since", r.sinceMs()));
    Path manifest = new Path(new Path(sink, SinkPlaces.WAITING), name);
    try (OutputStream out = fs.create(manifest, false)) {
      out.write(JSON.writeValueAsBytes(root));
    }
    return new Waiting(batch, manifest, form, rows);
  }

  /** What waits by the list, which the attempts of other drivers have written, too. */
  private static Waiting listed(FileSystem fs, Path sink) throws IOException {
    Path named = mayWait(fs, sink) ? newestNamed(fs, sink) : null;
    if (named == null) {
      return new Waiting(-1, null, "", List.of());
    }
    try (BufferedReader in = reader(fs, named)) {
      return parse(sink, named, JSON.readTree(in));
    } catch (FileNotFoundException | JsonProcessingException | RuntimeException e) {
      throw notFound(sink, named, e);
    }
  }

  private static Waiting parse(Path sink, Path manifest, JsonNode said) {
    // The files of a manifest are beside it.
    String root = SinkPaths.below(sink, manifest.getParent());
    List<Rows> rows = new ArrayList<>();
    Set<String> paths = new HashSet<>();
    for (JsonNode file : said.required("files")) {
      String path = text(file, "path");
      // Only what is below the directory is this sink's; and what is named twice would be published twice.
      if (!SinkPaths.isPlain(path)) {
        throw new IllegalArgumentException("it names '" + path + "', which is no path of a file that waits");
      }
      if (!paths.add(path)) {
        throw new IllegalArgumentException("it names a file twice");
      }
      rows.add(new Rows(root, path, number(file, "size"), number(file, "since")));
    }
    return new Waiting(number(said, "batch"), manifest, text(said, "form"), rows);
  }

  private static String text(JsonNode node, String name) {
    JsonNode value = node.required(name);
    if (!value.isTextual()) {
      throw new IllegalArgumentException(name + " is no text in it");
    }
    return value.textValue();
  }

  private static long number(JsonNode node, String name) {
    JsonNode value = node.required(name);
    if (!value.isIntegralNumber() || !value.canConvertToLong() || value.longValue() < 0) {
      throw new IllegalArgumentException(name + " is no whole number in it");
    }
    return value.longValue();
  }

  private static StateStoreFilesException notFound(Path sink, Path named, Exception e) {
    return new StateStoreFilesException(
        Id.PSS_SINK_COMPACTION_FAILED,
        "The list of "
            + sink
            + " says that rows wait to be published, and "
            + named
            + ", which says where they are, cannot be read: "
            + e.getMessage()
            + ". Nothing was changed. Bring the"
            + " file back. A copy of a sink has to be in the same place as the sink.",
        e);
  }

  private static Path newestNamed(FileSystem fs, Path sink) throws IOException {
    Path list = new Path(sink, SinkPlaces.LIST);
    if (!fs.exists(list)) {
      return null;
    }
    List<Matcher> parts = new ArrayList<>();
    for (FileStatus file : fs.listStatus(list)) {
      Matcher part = PART.matcher(file.getPath().getName());
      if (part.matches()) {
        parts.add(part);
      }
    }
    // Newest first; the repetition of all batches before counts for the batch itself.
    parts.sort(
        Comparator.<Matcher>comparingLong(part -> Long.parseLong(part.group(1)))
            .thenComparing(part -> part.group(2) != null)
            .reversed());
    for (Matcher part : parts) {
      Path newest = newestIn(fs, sink, new Path(list, part.group()));
      if (newest != null || part.group(2) != null) {
        return newest;
      }
    }
    return null;
  }

  private static Path newestIn(FileSystem fs, Path sink, Path part) throws IOException {
    Path newest = null;
    try (BufferedReader in = reader(fs, part)) {
      in.readLine(); // the version, which Spark checks
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        Path path = manifestIn(sink, part, line);
        if (path != null && (newest == null || batchOf(path) > batchOf(newest))) {
          newest = path;
        }
      }
    }
    return newest;
  }

  /**
   * The manifest that a line of the list names; null where it names a file. A line that cannot be understood may have
   * been that of a manifest, without which rows would be forgotten.
   */
  private static Path manifestIn(Path sink, Path part, String line) throws IOException {
    try {
      JsonNode said = JSON.readTree(line);
      JsonNode isDirectory = said.required("isDir");
      Path path = SparkPath.fromUrlString(text(said, "path")).toPath();
      if (!isDirectory.isBoolean()) {
        throw new IllegalArgumentException("isDir is neither true nor false in a line");
      }
      if (!isDirectory.booleanValue()) {
        return null;
      }
      for (String root : SinkPlaces.ALL_WAITING) {
        Path own = new Path(new Path(sink, root), path.getName());
        if (MANIFEST.matcher(path.getName()).matches() && SinkPaths.areSame(own, path)) {
          return own;
        }
      }
      throw new IllegalArgumentException(path + " is in another directory, or no manifest");
    } catch (JsonProcessingException | RuntimeException e) {
      throw notFound(sink, part, e);
    }
  }

  private static long batchOf(Path manifest) {
    return Long.parseLong(manifest.getName().substring(0, manifest.getName().indexOf('-')));
  }

  private static BufferedReader reader(FileSystem fs, Path file) throws IOException {
    return new BufferedReader(new InputStreamReader(fs.open(file), StandardCharsets.UTF_8));
  }

  /** Which of the files of {@code before} do not wait any more. */
  List<Path> goneSince(Waiting before, Path sink) {
    Set<Path> still = rows.stream().map(r -> r.status(sink).getPath()).collect(Collectors.toSet());
    List<Path> gone = new ArrayList<>();
    before.rows.stream().map(r -> r.status(sink).getPath()).filter(r -> !still.contains(r)).forEach(gone::add);
    if (before.manifest != null && !before.manifest.equals(manifest)) {
      gone.add(before.manifest);
    }
    return gone;
  }

  /** Deletes what attempts that failed have left before a time. */
  void sweep(FileSystem fs, Path sink, long beforeMs) throws IOException {
    Set<Path> counts = rows.stream().map(r -> r.status(sink).getPath()).collect(Collectors.toSet());
    counts.add(manifest);
    for (String name : SinkPlaces.ALL_WAITING) {
      Path root = new Path(sink, name);
      if (manifest == null || !fs.exists(root)) {
        continue;
      }
      for (RemoteIterator<LocatedFileStatus> i = fs.listFiles(root, true); i.hasNext(); ) {
        FileStatus file = i.next();
        if (file.getModificationTime() < beforeMs && !counts.contains(file.getPath())) {
          LOG.info("Deleting {}, which an attempt that failed has left", file.getPath());
          fs.delete(file.getPath(), false);
        }
      }
    }
  }
}
