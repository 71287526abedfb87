package io.pyspark.statestore.sink;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Entries that repartitionings have left out of the list of a query's file sink.
 *
 * <p>A repartitioning is a batch in the query's logs that writes nothing to a sink. Once the list has a later entry,
 * readers fail for want of that one, and the query fails when it repeats the list. So the query's driver adds it,
 * empty, by Spark's own list, before the next batch is added. The next batch is in the offset log by then: nobody can
 * take the repartitioning back, and no batch of the query has that number. And a query knows its own sink.
 *
 * <p>An entry that was lost named files. So only batches count that are repartitionings by the query's logs; {@code
 * log.repartitionings} in Python has the same rule.
 */
public final class ListHoles {
  private static final Logger LOG = LoggerFactory.getLogger(ListHoles.class);
  private static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
  private static final Pattern ENTRY = Pattern.compile("([0-9]{1,18})(\\.compact)?");
  private static final String SETTINGS = "conf";
  private static final String PARTITIONS = "spark.sql.shuffle.partitions";

  /** A conversion puts another class into the newest entry, and that may be a repartitioning's. */
  private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";

  private ListHoles() {}

  /**
   * Adds what is missing.
   *
   * @param query whose next batch is in its offset log
   * @param sink where it writes files
   */
  static void fill(Object query, Object sink, Configuration conf) throws IOException, ReflectiveOperationException {
    Object list = RunningSink.field(sink, "fileLog");
    Path root = (Path) RunningSink.call(list, "metadataPath");
    NavigableMap<Long, Path> entries = new TreeMap<>();
    long start = -1;
    for (FileStatus file : listed(root, conf)) {
      Matcher name = ENTRY.matcher(file.getPath().getName());
      if (name.matches()) {
        entries.put(Long.parseLong(name.group(1)), file.getPath());
        start = name.group(2) == null ? start : Math.max(start, Long.parseLong(name.group(1)));
      }
    }
    if (entries.isEmpty()) {
      return;
    }
    Path checkpoint = new Path((String) RunningSink.call(query, "resolvedCheckpointRoot"));
    NavigableMap<Long, Path> committed = numbered(new Path(checkpoint, "commits"), conf);
    List<Long> missing = new ArrayList<>();
    NavigableMap<Long, Path> entered = null;
    for (long batch = start + 1; !committed.isEmpty() && batch <= committed.lastKey(); batch++) {
      if (entries.containsKey(batch)) {
        continue;
      }
      entered = entered == null ? numbered(new Path(checkpoint, "offsets"), conf) : entered;
      boolean isOver = !entered.isEmpty() && batch < entered.lastKey() && committed.containsKey(batch);
      if (!isOver || !isRepartitioning(batch, entered, conf)) {
        LOG.warn(
            "The list of files in {} has no entry for batch {}, and it is not known to be a repartitioning. Readers"
                + " fail. What to do: restore it from a copy",
            root,
            batch);
        return;
      }
      missing.add(batch);
    }
    for (long batch : missing) {
      add(list, sink, batch);
      LOG.info("The list of files in {} has got an empty entry for batch {}, which is a repartitioning", root, batch);
    }
  }

  private static void add(Object list, Object sink, long batch) throws ReflectiveOperationException {
    // Beside the sink's class, wherever Spark has that.
    String status = sink.getClass().getPackageName() + ".SinkFileStatus";
    Object none = Array.newInstance(Class.forName(status, true, sink.getClass().getClassLoader()), 0);
    // If it is there by now, another driver of the same query has added the same.
    list.getClass().getMethod("add", long.class, Object.class).invoke(list, batch, none);
  }

  private static boolean isRepartitioning(long batch, NavigableMap<Long, Path> entered, Configuration conf)
      throws IOException {
    if (!entered.containsKey(batch)) {
      return false;
    }
    String entry = text(entered.get(batch), conf);
    List<String> older = new ArrayList<>();
    for (Path path : entered.headMap(batch).values()) {
      older.add(text(path, conf));
    }
    return isRepartitioning(entry, older);
  }

  /**
   * Whether an entry of the offset log differs from an earlier one only in the number of partitions.
   *
   * @param older the earlier ones in ascending order
   */
  public static boolean isRepartitioning(String entry, Collection<String> older) {
    try {
      Said said = Said.of(entry);
      List<String> before = new ArrayList<>(older);
      for (int at = before.size() - 1; at >= 0 && said.partitions != null; at--) {
        Said earlier = Said.of(before.get(at));
        boolean isSame = earlier.partitions != null && earlier.rest.equals(said.rest);
        if (isSame && !earlier.partitions.equals(said.partitions)) {
          return true;
        }
      }
      return false;
    } catch (JsonProcessingException | ClassCastException e) {
      return false; // an entry that was cut off shows nothing
    }
  }

  /**
   * What an entry of the offset log says.
   *
   * @param partitions null where it does not say how many
   * @param rest all else
   */
  private record Said(String partitions, List<Object> rest) {
    static Said of(String entry) throws JsonProcessingException {
      String[] lines = entry.split("\n", 3);
      String settings = lines.length > 1 ? lines[1] : "";
      ObjectNode said = settings.isBlank() ? JSON.createObjectNode() : (ObjectNode) JSON.readTree(settings);
      ObjectNode conf = (ObjectNode) said.get(SETTINGS);
      JsonNode partitions = conf == null ? null : conf.remove(PARTITIONS);
      if (conf != null) {
        conf.remove(PROVIDER);
      }
      boolean isSaid = partitions != null && !partitions.isNull();
      return new Said(isSaid ? partitions.asText() : null, List.of(lines[0], said, lines.length > 2 ? lines[2] : ""));
    }
  }

  private static NavigableMap<Long, Path> numbered(Path folder, Configuration conf) throws IOException {
    NavigableMap<Long, Path> found = new TreeMap<>();
    for (FileStatus file : listed(folder, conf)) {
      Matcher name = ENTRY.matcher(file.getPath().getName());
      if (name.matches() && name.group(2) == null) {
        found.put(Long.parseLong(name.group(1)), file.getPath());
      }
    }
    return found;
  }

  private static FileStatus[] listed(Path folder, Configuration conf) throws IOException {
    try {
      return folder.getFileSystem(conf).listStatus(folder);
    } catch (FileNotFoundException e) {
      return new FileStatus[0];
    }
  }

  private static String text(Path path, Configuration conf) throws IOException {
    FileSystem files = path.getFileSystem(conf);
    try (InputStream in = files.open(path)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /** What a call by reflection has failed with. */
  static Throwable causeOf(Throwable failure) {
    return failure instanceof InvocationTargetException && failure.getCause() != null ? failure.getCause() : failure;
  }
}
