package io.pyspark.statestore.learn;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.metrics.LogMetrics;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Relocation markers: empty files {@code *.relocating}. A process that copies segments first makes its marker, then
 * looks at what lives, and deletes the marker when the copies are durable. While a marker may be older than a deletion,
 * the deletion's tombstone is kept, because a copy of what it kills may still appear (rules 5 and 6).
 *
 * <p>A living relocator renews its marker, however long its file system takes to make a copy visible. A dead one leaves
 * its marker behind, which expires {@code closedAfter} after this process first saw it as it is.
 */
public final class RelocationMarkers {
  private static final Logger LOG = LoggerFactory.getLogger(RelocationMarkers.class);

  private final Storage storage;
  private final Index index;
  private final Rules rules;
  private final WriterIdentity writer;
  private final LogMetrics metrics;
  private final Executor threads;
  private final Map<String, Seen> seen = new ConcurrentHashMap<>();

  /** Markers that are gone or expired, by name. The report of their copies may be under way. */
  private final Map<String, Ended> ended = new ConcurrentHashMap<>();

  /** This process's own that are under way: nothing of its own comes between their copies and their end. */
  private final Set<String> underWay = ConcurrentHashMap.newKeySet();

  /** Markers that one listing has not shown any more, which may not have shown their copies. */
  private volatile Set<String> missed = Set.of();

  /** When the newest listing began. */
  private volatile long listedMs;

  /**
   * A marker that a listing has shown.
   *
   * @param firstRefresh number of the first refresh that has shown it
   * @param modified when it was made or renewed, by the file system's clock
   * @param sinceMs when this process first saw it with that time
   */
  private record Seen(long firstRefresh, long modified, long sinceMs) {}

  /**
   * A marker that has ended.
   *
   * @param firstRefresh number of the first refresh that has shown it
   * @param endedIn number of the first that has shown its end
   */
  private record Ended(long firstRefresh, long endedIn) {}

  /**
   * @param threads renew markers, and may hang as long as the file system does
   */
  public RelocationMarkers(
      Storage storage, Index index, Rules rules, WriterIdentity writer, LogMetrics metrics, Executor threads) {
    this.storage = storage;
    this.index = index;
    this.rules = rules;
    this.writer = writer;
    this.metrics = metrics;
    this.threads = threads;
  }

  /** The marker of a relocation of this process. */
  public final class Marker {
    private final String name;
    private final Clocks.Stopwatch sinceMade = new Clocks.Stopwatch();
    private volatile Clocks.Stopwatch sinceRenewed = sinceMade;
    private boolean ended;

    /** Whether a write has failed that may have brought copies into a file all the same. */
    private boolean inDoubt;

    private Marker(String name) {
      this.name = name;
    }

    /** Whether copies may still be begun. */
    public boolean isTimely() {
      return sinceMade.elapsedMs() < rules.options().closedAfterMs() / 2;
    }

    /**
     * Writes copies.
     *
     * @throws IOException if the write fails, and also if the copies became visible when the marker may have been
     *     expired
     */
    public void write(Write copies) throws IOException {
      inDoubt = true;
      copies.run();
      if (!isHeeded()) {
        throw new IOException(
            "The copies count as failed: when they became visible, their relocation marker "
                + name
                + " had not been renewed for "
                + sinceRenewed.elapsedMs()
                + " ms. No file is unlinked because of them");
      }
      inDoubt = false;
    }

    private void create() throws IOException {
      storage.createEmpty(name);
      renewLater();
    }

    private void renewLater() {
      CompletableFuture.delayedExecutor(rules.options().closedAfterMs() / 4, TimeUnit.MILLISECONDS, threads)
          .execute(this::renew);
    }

    private synchronized void renew() {
      // A marker that may be expired for others must not come back: they no longer wait for its copies.
      if (ended || !isHeeded()) {
        return;
      }
      Clocks.Stopwatch begun = new Clocks.Stopwatch();
      try {
        storage.renew(name);
        sinceRenewed = isHeeded() ? begun : sinceRenewed;
      } catch (IOException | RuntimeException | Error e) {
        // Hadoop's local disk throws an Error where it is full.
        LOG.info("Could not renew the relocation marker {} of {}; trying again", name, storage.checkpoint(), e);
      } finally {
        renewLater();
      }
    }

    /**
     * Whether others still wait for the copies. They do so for {@code closedAfter}; a quarter is left for other clocks.
     */
    private boolean isHeeded() {
      return sinceRenewed.elapsedMs() < rules.options().closedAfterMs() * 3 / 4;
    }

    /** Ends the relocation. A marker whose copies may still appear stays until it expires. */
    public synchronized void end() {
      ended = true;
      try {
        if (!inDoubt) {
          storage.delete(name);
        }
      } catch (IOException | RuntimeException | Error e) {
        metrics.deleteFailed();
        LOG.info(
            "Could not delete the relocation marker {} of {}; cleaning deletes it once it is expired",
            name,
            storage.checkpoint(),
            e);
      } finally {
        underWay.remove(name);
      }
    }
  }

  /** Makes copies durable. */
  public interface Write {
    void run() throws IOException;
  }

  /** Marks a relocation. Look up what it copies only after this. */
  public Marker make() throws IOException {
    String name = writer.nextFileName(Clocks.wallMs(), Storage.RELOCATING_SUFFIX);
    underWay.add(name);
    Marker marker = new Marker(name);
    try {
      marker.create();
    } catch (IOException | RuntimeException | Error e) {
      underWay.remove(name);
      throw e;
    }
    return marker;
  }

  /**
   * Takes note of a listing.
   *
   * @param markers by name, when each was made or renewed
   * @param refresh the refresh's number
   * @param tails whether the refresh has also read the tails of all files that others may append to
   * @param isWhole whether the listing has shown the copies of every relocation that had ended. If not, they may be in
   *     a file on a page that was read before they came, which the next listing shows
   * @param beganMs when the listing began: what was read may lack copies that came later
   */
  public void listed(Map<String, Long> markers, long refresh, boolean tails, boolean isWhole, long beganMs) {
    Set<String> absent = new HashSet<>(tails ? seen.keySet() : Set.of());
    absent.removeAll(markers.keySet());
    Set<String> read = new HashSet<>(absent);
    if (!isWhole) {
      read.retainAll(missed);
    }
    absent.removeAll(read);
    missed = absent;
    seen.forEach(
        (name, marker) -> {
          if (read.contains(name) || isExpired(marker)) {
            ended.putIfAbsent(name, new Ended(marker.firstRefresh, refresh));
          }
        });
    ended.entrySet().removeIf(e -> !markers.containsKey(e.getKey()) && isSettled(e.getKey(), e.getValue().endedIn));
    seen.keySet().removeAll(read);
    long now = rules.now().monotonicMs();
    markers.forEach(
        (name, modified) -> {
          if (!underWay.contains(name)) {
            seen.merge(
                name,
                new Seen(refresh, modified, now),
                (known, found) -> known.modified == modified ? known : new Seen(known.firstRefresh, modified, now));
          }
        });
    listedMs = beganMs;
  }

  /** Whether there is any marker of another process, or a left-over one of this process. */
  public boolean any() {
    return !seen.isEmpty();
  }

  /** Whether every relocation that was under way when a refresh listed has ended, or its marker is expired. */
  public boolean noneSince(long refresh) {
    return seen.values().stream().noneMatch(s -> s.firstRefresh <= refresh && !isExpired(s))
        && ended.entrySet().stream()
            .allMatch(e -> e.getValue().firstRefresh > refresh || isSettled(e.getKey(), e.getValue().endedIn));
  }

  /** Whether the maker of a marker has reported on all files that it has open, since a refresh began. */
  private boolean isSettled(String name, long refresh) {
    long maker = MergedFile.writerOf(name);
    return index.files().stream()
        .noneMatch(
            file ->
                file.writerId() == maker
                    && file.isReported()
                    && file.writer() == MergedFile.Writer.OTHER
                    && file.changedIn() < refresh);
  }

  /** Names of the markers that dead relocators have left. */
  public List<String> expired() {
    return seen.entrySet().stream().filter(e -> isExpired(e.getValue())).map(Map.Entry::getKey).sorted().toList();
  }

  /** Deletes the expired markers. */
  public void deleteExpired() {
    for (String name : expired()) {
      try {
        storage.delete(name);
        seen.remove(name);
      } catch (IOException | RuntimeException e) {
        metrics.deleteFailed();
        LOG.info(
            "Could not delete the expired relocation marker {} of {}; the next pass tries again",
            name,
            storage.checkpoint(),
            e);
      }
    }
  }

  private boolean isExpired(Seen marker) {
    return rules.isExpired(marker.sinceMs, listedMs);
  }
}
