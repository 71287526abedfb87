package io.pyspark.statestore.clean;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.Pins;
import io.pyspark.statestore.write.PendingTombstones;
import java.io.IOException;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.fs.FileStatus;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The pins that this checkpoint, a fork, has in the checkpoints that it was forked from. Such a pin names the files in
 * which segments of the fork are. Once nothing of the fork lives in some of them any more, a pin that names the others
 * takes its place, or none.
 *
 * <p>What is dead stays dead (rules 3 to 5). Two passes have to find that nothing lives in a file, and the deletions
 * that the first of them knew have to be durable: otherwise they are forgotten if this process dies. And nobody may be
 * looking at what lives, to refer to it: then there is an empty pin here, in a listing that is younger than the passes.
 */
final class SourcePins {
  private static final Logger LOG = LoggerFactory.getLogger(SourcePins.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  /** The binary logarithm of the most passes between two attempts. */
  private static final int LONGEST_REST = 6;

  private final Storage storage;
  private final Index index;
  private final WriterIdentity writer;
  private final PendingTombstones tombstones;
  private final Pins pins;

  /** The directories with merged files of other checkpoints that reference files here have named. */
  private final Set<String> sources = new HashSet<>();

  /** The files in which something lived at the last call; null before the first one. */
  private Set<String> neededThen;

  private long deletionsThen;

  /** What the pins were last made to name, or could not be made to. */
  private Set<String> named;

  /** How often in a row they could not be, and how many passes have to go by until that is tried again. */
  private int failures;

  private int passesToRest;

  SourcePins(Storage storage, Index index, WriterIdentity writer, PendingTombstones tombstones, Pins pins) {
    this.storage = storage;
    this.index = index;
    this.writer = writer;
    this.tombstones = tombstones;
    this.pins = pins;
  }

  /** Lets go of what nothing lives in any more. Call it after a complete refresh. What fails is tried again later. */
  void letGo() throws IOException {
    Set<String> needed = needed();
    boolean isDurable = tombstones.areDurable(deletionsThen);
    Set<String> before = neededThen;
    neededThen = needed;
    deletionsThen = tombstones.count();
    if (sources.isEmpty() || before == null || !isDurable) {
      return;
    }
    Set<String> kept = new HashSet<>(needed);
    kept.addAll(before);
    boolean isKnown = kept.equals(named);
    if (isKnown && (failures == 0 || passesToRest-- > 0)) {
      return;
    }
    // Bytes that nobody understands may say that a file is needed.
    if (!index.files().stream().allMatch(MergedFile::isAccounted) || pins.now().all()) {
      return;
    }
    String forkId = forkId();
    named = kept;
    if (forkId == null) {
      failures = 0;
      return;
    }
    boolean isDone = true;
    for (String source : sources) {
      try {
        replaceIn(source, forkId, kept);
      } catch (IOException | RuntimeException e) {
        isDone = false;
        if (isKnown) { // who may not write there would be told the same in each pass
          LOG.debug("The pins in {} stay as they are once more", source, e);
          continue;
        }
        LOG.warn(
            "The pins of the fork {} in {} stay as they are, and keep more files there than it needs. A query of the"
                + " fork may have no right to write there. What to do: run pyspark-statestore orphans there once the"
                + " fork needs nothing, which drops them",
            storage.checkpoint(),
            source,
            e);
      }
    }
    failures = isDone ? 0 : failures + 1;
    passesToRest = isDone ? 0 : 1 << Math.min(failures, LONGEST_REST);
  }

  /** Names of the files of other checkpoints in which something lives. Takes note of where they are. */
  private Set<String> needed() {
    Set<String> needed = new HashSet<>();
    for (MergedFile file : index.files()) {
      if (!file.isReference()) {
        continue;
      }
      for (MergedFile.ForeignFile foreign : file.foreignFiles()) {
        if (foreign.path().startsWith("/")) {
          sources.add(foreign.path().substring(0, foreign.path().lastIndexOf('/')));
        }
      }
      for (Segment segment : index.liveSegments(file)) {
        if (segment.holder().isForeign()) {
          String path = segment.holder().name();
          needed.add(path.substring(path.lastIndexOf('/') + 1));
        }
      }
    }
    return needed;
  }

  /** What the pins of this fork call it: empty in a fork of an early build, null in what is none. */
  private String forkId() throws IOException {
    for (FileStatus status : storage.ending(storage.directory(), Storage.ORIGIN_SUFFIX)) {
      byte[] bytes = storage.read(status.getPath().getName(), status.getLen());
      return JSON.readTree(bytes).path("fork_id").asText("");
    }
    return null;
  }

  private void replaceIn(String source, String forkId, Set<String> kept) throws IOException {
    String checkpoint = storage.stateDirectory().getParent().toUri().getPath();
    Map<String, Pins.Content> tooMuch = new LinkedHashMap<>();
    Set<Set<String>> said = new HashSet<>();
    for (FileStatus status : storage.ending(storage.path(source + "/any").getParent(), Storage.PIN_SUFFIX)) {
      String name = status.getPath().getName();
      if (status.getLen() == 0 || status.getLen() > Pins.LARGEST) {
        continue;
      }
      Pins.Content pin = understood(storage.read(source + "/" + name, status.getLen()));
      // A fork that was in this place before has another id. The files of a claimed checkpoint are the fork's own.
      if (pin == null || !pin.fork().equals(checkpoint) || !pin.forkId().equals(forkId) || pin.claims()) {
        continue;
      }
      if (kept.containsAll(pin.files())) {
        said.add(Set.copyOf(pin.files()));
      } else {
        tooMuch.put(name, pin);
      }
    }
    for (Map.Entry<String, Pins.Content> old : tooMuch.entrySet()) {
      Set<String> still = new TreeSet<>(old.getValue().files());
      still.retainAll(kept);
      // One that says so may be there since an attempt that could not delete the old one.
      if (!still.isEmpty() && said.add(still)) {
        // Its name comes after the other's: a listing that no longer shows that one has this one on a page to come.
        long createdMs = Math.max(Clocks.wallMs(), Long.parseLong(old.getKey().substring(0, 13)) + 1);
        String next = writer.nextFileName(createdMs, Storage.PIN_SUFFIX);
        storage.write(source + "/" + next, old.getValue().naming(List.copyOf(still), createdMs));
      }
      storage.delete(source + "/" + old.getKey());
    }
  }

  /** What a pin says; null where it is not known whose it is. It pins every file then. */
  private static Pins.Content understood(byte[] bytes) {
    try {
      return Pins.Content.of(bytes, false);
    } catch (IOException | RuntimeException e) {
      return null;
    }
  }
}
