package io.pyspark.statestore.learn;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.format.Checksum;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.FileStatus;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The pins in this checkpoint: small files {@code *.fork}, each of which names a fork and the merged files that the
 * fork reads. A merged file that a pin names is never unlinked. An empty pin, whose fork is being made, and a pin that
 * cannot be understood pin every file (rule 8).
 *
 * <p>A pin {@code *.own} is the checkpoint's own: partitions were split, and segments of the files that it names have
 * second paths. It goes once nothing lives at these.
 *
 * <p>Before files are unlinked, a listing that is younger than all that the unlinks rest on shows the pins. A fork
 * whose pin it does not show looks later, and finds dead what is dead.
 */
public final class Pins {
  private static final Logger LOG = LoggerFactory.getLogger(Pins.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  /** In bytes. A larger pin was not made by a fork. */
  public static final long LARGEST = 64 << 20;

  private final Storage storage;
  private final Rules rules;

  /**
   * By name, when an empty pin or one of the checkpoint's own was first seen. An empty one expires after {@code
   * closedAfter}, as relocation markers do. The other may be dropped from then on, if nothing needs it.
   */
  private final Map<String, Long> sinceMs = new ConcurrentHashMap<>();

  private volatile Set<String> unneededBefore = Set.of();
  private final Map<String, Pin> read = new ConcurrentHashMap<>();
  private volatile List<FileStatus> listed = List.of();
  private volatile Held held = new Held(false, Set.of());

  /** A pin's content; {@code files} is null for a pin that cannot be understood. */
  private record Pin(long length, long modified, String fork, boolean claims, Set<String> files) {}

  /**
   * What must not be unlinked.
   *
   * @param all whether that is every file
   * @param files names of the files, where it is not
   */
  public record Held(boolean all, Set<String> files) {
    public boolean holds(MergedFile file) {
      return all || files.contains(file.name());
    }
  }

  Pins(Storage storage, Rules rules) {
    this.storage = storage;
    this.rules = rules;
  }

  /** Takes note of a listing. Reads no pin. */
  void listed(List<FileStatus> pins) {
    Set<String> names = new HashSet<>();
    for (FileStatus pin : pins) {
      names.add(name(pin));
      if (pin.getLen() == 0 || isOwn(name(pin))) {
        sinceMs.putIfAbsent(name(pin), rules.now().monotonicMs());
      }
    }
    sinceMs.keySet().retainAll(names);
    read.keySet().retainAll(names);
    listed = pins;
    held = held(pins);
  }

  /** Whether a file is pinned, as far as is known. That is enough for planning; see {@link #now} for unlinking. */
  public boolean hold(MergedFile file) {
    return held.holds(file);
  }

  /** What is pinned, as far as is known. */
  public Held held() {
    return held;
  }

  /** Reads the pins of the newest listing, and again those that could not be understood. */
  public void readAll() {
    listed.forEach(pin -> read(pin, true));
    held = held(listed);
  }

  /** Lists the pins anew and says what they hold. Call it right before files are unlinked. */
  public Held now() throws IOException {
    List<FileStatus> pins = storage.listPins();
    listed(pins);
    pins.forEach(pin -> read(pin, false));
    Held found = held(pins);
    held = found;
    return found;
  }

  /** Whether a pin of the checkpoint itself is old enough to be dropped, as far as is known. */
  public boolean anyOldOwn() {
    long now = rules.now().monotonicMs();
    return listed.stream().anyMatch(status -> isOldOwn(status, now));
  }

  /**
   * Drops the old pins of the checkpoint itself that nothing has needed since the call before this one. Call it after a
   * complete refresh that began when they were old, and with all deletions before the last call durable.
   *
   * @param needed names of the files that have to stay for second paths
   */
  public void dropOwn(Set<String> needed) throws IOException {
    long now = rules.now().monotonicMs();
    Set<String> unneeded = new HashSet<>();
    for (FileStatus status : listed) {
      Pin pin = isOldOwn(status, now) ? read(status, false) : null;
      if (pin != null && pin.files != null && pin.files.stream().noneMatch(needed::contains)) {
        unneeded.add(name(status));
      }
    }
    for (String name : unneeded) {
      if (unneededBefore.contains(name)) {
        storage.delete(name);
      }
    }
    unneededBefore = unneeded;
  }

  private boolean isOldOwn(FileStatus status, long now) {
    String name = name(status);
    return isOwn(name) && status.getLen() > 0 && rules.isExpired(sinceMs.getOrDefault(name, now), now);
  }

  /**
   * Checks that this checkpoint may still be written to.
   *
   * @throws StateStoreFilesException PSS_CLAIMED, where a fork has claimed it
   */
  public void checkUnclaimed() throws StateStoreFilesException {
    for (FileStatus status : listed) {
      Pin pin = read(status, false);
      if (pin != null && pin.claims) {
        throw new StateStoreFilesException(
            Id.PSS_CLAIMED,
            "The state of "
                + storage.checkpoint()
                + " belongs to the fork "
                + pin.fork
                + " now, which"
                + " was made with mode='claim': nothing more may be written here. Go on with the fork; or delete the"
                + " fork and then "
                + status.getPath()
                + ".");
      }
    }
  }

  private Held held(List<FileStatus> pins) {
    long now = rules.now().monotonicMs();
    Set<String> files = new HashSet<>();
    for (FileStatus status : pins) {
      Pin pin = read.get(name(status));
      if (status.getLen() == 0) {
        if (!rules.isExpired(sinceMs.getOrDefault(name(status), now), now)) {
          return new Held(true, Set.of());
        }
      } else if (pin == null || !isOf(pin, status) || pin.files == null) {
        return new Held(true, Set.of());
      } else {
        files.addAll(pin.files);
      }
    }
    return new Held(false, files);
  }

  /** Reads a pin; returns null for an empty one. */
  private Pin read(FileStatus status, boolean again) {
    if (status.getLen() == 0) {
      return null;
    }
    Pin known = read.get(name(status));
    if (known != null && isOf(known, status) && (known.files != null || !again)) {
      return known;
    }
    Pin pin;
    try {
      pin = parse(status);
    } catch (IOException | RuntimeException e) {
      LOG.warn(
          "The pin {} cannot be understood; no merged file of {} is unlinked meanwhile. What to do: bring it"
              + " back from a"
              + " copy, or delete it if no fork reads files here",
          status.getPath(),
          storage.checkpoint(),
          e);
      pin = new Pin(status.getLen(), status.getModificationTime(), "", false, null);
    }
    read.put(name(status), pin);
    return pin;
  }

  private Pin parse(FileStatus status) throws IOException {
    if (status.getLen() > LARGEST) {
      throw new IOException("It has " + status.getLen() + " bytes; a pin has " + LARGEST + " at most");
    }
    byte[] bytes = storage.read(name(status), status.getLen());
    Content said = Content.of(bytes, isOwn(name(status)));
    return new Pin(status.getLen(), status.getModificationTime(), said.fork, said.claims(), new HashSet<>(said.files));
  }

  /**
   * What a pin says.
   *
   * @param fork path of the fork's checkpoint; empty in a pin of the checkpoint itself
   * @param files names of the files that it pins
   * @param said all of it, with what this release does not know
   */
  public record Content(String fork, String mode, List<String> files, ObjectNode said) {
    /**
     * Reads a pin's bytes.
     *
     * @param own whether it is a pin of the checkpoint itself
     * @throws IOException if it cannot be understood
     */
    public static Content of(byte[] bytes, boolean own) throws IOException {
      JsonNode said = JSON.readTree(bytes);
      JsonNode names = said.path("files");
      String mode = said.path("mode").asText();
      boolean understood =
          said.path("fork").isTextual()
              && names.isArray()
              && (own ? mode.equals("own") : mode.equals("claim") || mode.equals("no_claim"));
      List<String> files = new ArrayList<>();
      for (JsonNode name : names) {
        understood &= name.isTextual();
        files.add(name.asText());
      }
      String fork = said.path("fork").asText();
      // Pins of release 0.1 have no checksum.
      understood &= !said.has("crc32c") || said.get("crc32c").longValue() == checksum(fork, mode, files);
      if (!understood) {
        throw new IOException("It lacks a fork, mode or files as a pin has them, or its checksum is wrong");
      }
      return new Content(fork, mode, files, (ObjectNode) said);
    }

    public boolean claims() {
      return mode.equals("claim");
    }

    /** What the fork's origin calls it, too; empty in a pin of an early build. */
    public String forkId() {
      return said.path("fork_id").asText("");
    }

    /** The bytes of a pin that says the same of other files. */
    public byte[] naming(List<String> others, long createdMs) throws IOException {
      ObjectNode next = said.deepCopy();
      ArrayNode names = next.putArray("files");
      others.forEach(names::add);
      next.put("created_ms", createdMs);
      next.put("crc32c", checksum(fork, mode, others));
      return JSON.writeValueAsBytes(next);
    }

    private static long checksum(String fork, String mode, List<String> files) {
      StringBuilder all = new StringBuilder(fork).append('\n').append(mode);
      files.forEach(name -> all.append('\n').append(name));
      byte[] checked = all.toString().getBytes(StandardCharsets.UTF_8);
      return Integer.toUnsignedLong(Checksum.crc32c(checked, 0, checked.length));
    }
  }

  private static boolean isOf(Pin pin, FileStatus status) {
    return pin.length == status.getLen() && pin.modified == status.getModificationTime();
  }

  private static boolean isOwn(String name) {
    return name.endsWith(Storage.OWN_PIN_SUFFIX);
  }

  private static String name(FileStatus status) {
    return status.getPath().getName();
  }
}
