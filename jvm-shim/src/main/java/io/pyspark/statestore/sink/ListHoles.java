package io.pyspark.statestore.sink;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.pyspark.statestore.Unchecked;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.function.LongConsumer;
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
 * empty, right before its own next entry, and by Spark's own list: see {@link FilledSinkLog}. Nobody can take the
 * repartitioning back by then, no batch of the query has that number, and the list is the one to which the query's next
 * batch goes in any case.
 *
 * <p>An entry that was lost named files. So only batches count that write to no sink by the query's logs; {@code
 * log.repartitionings} in Python has the same rule.
 */
final class ListHoles {
  private static final Logger LOG = LoggerFactory.getLogger(ListHoles.class);
  private static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
  private static final Pattern BATCH = Pattern.compile("([0-9]{1,18})");
  private static final Pattern ENTRY = Pattern.compile("([0-9]{1,18})(\\.compact)?");
  private static final String SETTINGS = "conf";
  private static final String PARTITIONS = "spark.sql.shuffle.partitions";

  /** The folder of a checkpoint for what was replaced, and a file in it that says that a batch writes to no sink. */
  private static final String NOTES = "_replaced";

  private static final Pattern NOTE = Pattern.compile("([0-9]{1,18})\\.repartitioning");

  /** A conversion puts another class into the newest entry, and that may be a repartitioning's. */
  private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";

  private final Path checkpoint;
  private final Configuration conf;
  private boolean isFilled;

  /** Of the query with a checkpoint. */
  ListHoles(Path checkpoint, Configuration conf) {
    this.checkpoint = checkpoint;
    this.conf = conf;
  }

  /**
   * Fills the list, once, before the query adds a batch.
   *
   * @param add adds an empty entry; if it is there by now, another driver of the same query has added the same
   */
  void fillBefore(long next, Path list, LongConsumer add) {
    if (isFilled) {
      return;
    }
    try {
      List<Long> missing = before(next, list);
      missing.forEach(add::accept);
      filled(missing);
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
    isFilled = true;
  }

  /**
   * The batches before one that get an empty entry, in ascending order. None where another entry was lost, or something
   * is not as expected: the query goes on as without the package.
   */
  private List<Long> before(long next, Path list) throws IOException {
    try {
      return missing(next, list);
    } catch (RuntimeException e) {
      LOG.warn(
          "Whether the list of files in {} lacks the entry of a repartitioning was not found out. What to do: if"
              + " readers fail with BATCH_METADATA_NOT_FOUND, run pyspark-statestore sink verify DIRECTORY --repair"
              + " --checkpoint PATH",
          list,
          e);
      return List.of();
    }
  }

  /**
   * Looks at the query's logs before it enters a batch, and notes what is needed then: a query that is told to keep few
   * batches forgets what a repartitioning was made of, and the batch may fail.
   */
  void look(Path list) throws IOException {
    List<Long> missing = Entries.of(listed(list)).withoutAny(numbered("commits", BATCH).keySet());
    if (!missing.isEmpty()) {
      Set<Long> withoutOutput = withoutOutput();
      for (long batch : missing) {
        if (withoutOutput.contains(batch)) {
          note(batch).getFileSystem(conf).create(note(batch), true).close();
        }
      }
    }
  }

  private Path note(long batch) {
    return new Path(new Path(checkpoint, NOTES), batch + ".repartitioning");
  }

  /** The entries are there: what was noted of the batches is over. */
  private void filled(List<Long> batches) {
    try {
      for (long batch : batches) {
        note(batch).getFileSystem(conf).delete(note(batch), false);
      }
    } catch (IOException e) {
      LOG.debug("A note at {} stays, which says what the logs said", note(batches.get(0)), e);
    }
  }

  /**
   * The entries of a list.
   *
   * @param start up to which nobody reads any but the one that repeats the others; -1 where all count
   */
  private record Entries(Set<Long> batches, long start) {
    static Entries of(FileStatus[] files) {
      Set<Long> batches = new HashSet<>();
      long start = -1;
      for (FileStatus file : files) {
        Matcher name = ENTRY.matcher(file.getPath().getName());
        if (name.matches()) {
          batches.add(Long.parseLong(name.group(1)));
          start = name.group(2) == null ? start : Math.max(start, Long.parseLong(name.group(1)));
        }
      }
      return new Entries(batches, start);
    }

    /** Those of the batches that should have an entry, and have none. A list without any has just begun. */
    List<Long> withoutAny(Collection<Long> of) {
      return batches.isEmpty()
          ? List.of()
          : of.stream().filter(batch -> batch > start && !batches.contains(batch)).toList();
    }
  }

  private List<Long> missing(long next, Path list) throws IOException {
    Entries entries = Entries.of(listed(list));
    List<Long> missing = new ArrayList<>();
    Set<Long> withoutOutput = null;
    for (long batch = entries.start + 1; batch < next && !entries.batches.isEmpty(); batch++) {
      if (!entries.batches.contains(batch)) {
        withoutOutput = withoutOutput == null ? withoutOutput() : withoutOutput;
        if (!withoutOutput.contains(batch)) {
          LOG.warn(
              "The list of files in {} has no entry for batch {}, and it is not known to be a repartitioning. Readers"
                  + " fail. What to do: if it was lost, restore it from a copy; if the query has begun in another"
                  + " directory, see docs/fork.md",
              list,
              batch);
          return List.of();
        }
        missing.add(batch);
      }
    }
    for (long batch : missing) {
      LOG.info("The list of files in {} gets an empty entry for batch {}, which is a repartitioning", list, batch);
    }
    return missing;
  }

  /** The committed batches that write to no sink, as far as the offset log still says, or a note does. */
  private Set<Long> withoutOutput() throws IOException {
    SortedMap<Long, String> entered = new TreeMap<>();
    for (Map.Entry<Long, Path> entry : numbered("offsets", BATCH).entrySet()) {
      try {
        entered.put(entry.getKey(), text(entry.getValue()));
      } catch (FileNotFoundException e) {
        // The query has purged it meanwhile.
      }
    }
    Set<Long> found = new HashSet<>(withoutOutput(entered));
    found.retainAll(numbered("commits", BATCH).keySet());
    // These were committed when they were noted.
    found.addAll(numbered(NOTES, NOTE).keySet());
    return found;
  }

  /** The files of a folder of the checkpoint whose names are of a form, by the batch in them. */
  private Map<Long, Path> numbered(String folder, Pattern form) throws IOException {
    Map<Long, Path> found = new HashMap<>();
    for (FileStatus file : listed(new Path(checkpoint, folder))) {
      Matcher name = form.matcher(file.getPath().getName());
      if (name.matches()) {
        found.put(Long.parseLong(name.group(1)), file.getPath());
      }
    }
    return found;
  }

  private FileStatus[] listed(Path folder) throws IOException {
    try {
      return folder.getFileSystem(conf).listStatus(folder);
    } catch (FileNotFoundException e) {
      return new FileStatus[0];
    }
  }

  private String text(Path path) throws IOException {
    FileSystem files = path.getFileSystem(conf);
    try (InputStream in = files.open(path)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /**
   * The batches that write to no sink: repartitionings, and those that were skipped for one, after the batch whose
   * state it has taken.
   *
   * @param entries of the offset log, by batch
   */
  static List<Long> withoutOutput(SortedMap<Long, String> entries) {
    List<Long> found = new ArrayList<>();
    for (Map.Entry<Long, String> entry : entries.entrySet()) {
      SortedMap<Long, String> older = entries.headMap(entry.getKey());
      Long base = baseOf(entry.getValue(), older);
      if (base != null) {
        found.addAll(entries.subMap(base + 1, entry.getKey() + 1).keySet());
      }
    }
    return found;
  }

  /** The last earlier batch whose entry differs only in the number of partitions; null without one. */
  private static Long baseOf(String entry, SortedMap<Long, String> older) {
    try {
      Said said = Said.of(entry);
      List<Long> batches = new ArrayList<>(older.keySet());
      for (int at = batches.size() - 1; at >= 0 && said.partitions != null; at--) {
        Said earlier = Said.of(older.get(batches.get(at)));
        boolean isSame = earlier.partitions != null && earlier.rest.equals(said.rest);
        if (isSame && !earlier.partitions.equals(said.partitions)) {
          return batches.get(at);
        }
      }
      return null;
    } catch (JsonProcessingException | ClassCastException e) {
      return null; // an entry that was cut off shows nothing
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
}
