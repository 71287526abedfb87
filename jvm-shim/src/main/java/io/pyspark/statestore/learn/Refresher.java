package io.pyspark.statestore.learn;

import io.pyspark.statestore.files.Parallel;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.metrics.LogMetrics;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.apache.hadoop.fs.FileStatus;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Brings the index up to date with the file system: lists the merged files once, reads the indexes of new ones and the
 * new tails of those that other processes append to, and forgets those that are gone.
 *
 * <p>Questions that come while a refresh runs share the next one. So every answer rests on a refresh that began after
 * the question.
 */
public final class Refresher {
  private static final Logger LOG = LoggerFactory.getLogger(Refresher.class);

  /** How often a refresh begins again because files disappeared during it. */
  private static final int ATTEMPTS = 10;

  private final Storage storage;
  private final Index index;
  private final Rules rules;
  private final LogMetrics metrics;
  private final long writerId;
  private final IndexReader reader;
  private final RelocationMarkers markers;
  private final Pins pins;
  private final Executor threads;
  private final Consumer<MergedFile> forget;
  private final ReentrantLock running = new ReentrantLock();
  private final RecentKeys keys = new RecentKeys();

  /** Index-only files that are damaged. They only save reads, so the files that they repeat are read instead. */
  private final Set<String> unreadable = ConcurrentHashMap.newKeySet();

  /** Number of the newest refresh that has begun, complete or not. */
  private volatile long begun;

  /** Whether a refresh is under way that has found a file gone in which something lived, and may look again. */
  private volatile boolean unsettled;

  private volatile long timesUnsettled;
  private long succeeded;
  private volatile long succeededCompletely;

  /** Whether the newest listing may have come page by page. */
  private volatile boolean isPaged;

  private volatile long lastBeganNanos;
  private volatile long lastTailsNanos = System.nanoTime();

  /**
   * @param threads read the indexes
   * @param forget removes a file that is gone from the index, and closes what is open of it
   */
  Refresher(
      Storage storage,
      Index index,
      Rules rules,
      LogMetrics metrics,
      long writerId,
      IndexReader reader,
      RelocationMarkers markers,
      Pins pins,
      Executor threads,
      Consumer<MergedFile> forget) {
    this.storage = storage;
    this.index = index;
    this.rules = rules;
    this.metrics = metrics;
    this.writerId = writerId;
    this.reader = reader;
    this.markers = markers;
    this.pins = pins;
    this.threads = threads;
    this.forget = forget;
  }

  /**
   * Returns after one complete refresh for each of these keys that began after the first call with the key.
   *
   * @param asked equal for all questions that may share an answer
   */
  public void refreshFor(FreshnessKey... asked) throws IOException {
    refresh(Depth.COMPLETE, keys.needed(() -> begun, asked));
  }

  /** Refreshes from a listing, if the newest refresh is older than {@code maxAgeMs}. */
  void refreshIfOlderThan(long maxAgeMs) throws IOException {
    if ((System.nanoTime() - lastBeganNanos) / 1_000_000 > maxAgeMs) {
      refreshListing();
    }
  }

  /** Number of the newest refresh that has begun. */
  public long number() {
    return begun;
  }

  /** How often the index has begun to lack, for a moment, what lives. {@link #settle} waits until it does not. */
  public long timesUnsettled() {
    return timesUnsettled;
  }

  /** Waits for a refresh that has found a file gone in which something lived, and may look again. */
  public void settle() {
    if (unsettled) {
      running.lock();
      running.unlock();
    }
  }

  /**
   * Whether maintenance may read the tails of all files that others have open and do not report on: on average one of
   * them a second, so that a thousand executors do not overload a NameNode by watching each other, and a driver does
   * not read all that a killed cluster has left in each of its passes.
   */
  public boolean mayReadTails() {
    long open = index.files().stream().filter(f -> f.writer() == MergedFile.Writer.OTHER && !f.isReported()).count();
    return System.nanoTime() - lastTailsNanos >= open * 1_000_000_000L;
  }

  /**
   * Returns after a complete refresh that began after this call: a listing, and the tails of all files that others may
   * append to.
   *
   * @return its number
   */
  public long refresh() throws IOException {
    return refresh(Depth.COMPLETE, begun + 1);
  }

  /**
   * Returns after a refresh that began after this call and read only the files that are new or look different in the
   * listing. It may miss what others have appended to open files, so cleaning that rests on it only deletes less.
   */
  public void refreshListing() throws IOException {
    refresh(Depth.LISTING, begun + 1);
  }

  /**
   * Returns after a refresh with one listing, for a cleaning pass. Where that {@link #isPaged}, it may miss what was
   * never known before and was moved meanwhile. What a pass concludes from that, two refreshes have to show.
   *
   * @param tails whether to read the tails of all files that others may append to, too
   * @return its number
   */
  public long refreshForCleaning(boolean tails) throws IOException {
    return refresh(tails ? Depth.TAILS : Depth.ONE_LISTING, begun + 1);
  }

  /** Whether the newest listing may have come page by page, and so may not be a snapshot. */
  public boolean isPaged() {
    return isPaged;
  }

  /** What a refresh looks at. A directory that is listed page by page is listed twice, if it does not say otherwise. */
  private enum Depth {
    /** One listing. */
    ONE_LISTING(false, false),
    LISTING(false, true),
    /** One listing, and the tails of all files that others may append to. */
    TAILS(true, false),
    COMPLETE(true, true);

    private final boolean tails;
    private final boolean twice;

    Depth(boolean tails, boolean twice) {
      this.tails = tails;
      this.twice = twice;
    }
  }

  private long refresh(Depth depth, long needed) throws IOException {
    if (succeededCompletely >= needed) {
      return succeededCompletely;
    }
    running.lock();
    try {
      long newest = depth.tails ? succeededCompletely : succeeded;
      if (newest >= needed) {
        return newest;
      }
      long mine = begun + 1;
      begun = mine;
      lastBeganNanos = System.nanoTime();
      try {
        run(mine, depth);
      } finally {
        unsettled = false;
      }
      if (depth.twice || !isPaged) {
        succeeded = mine;
        succeededCompletely = depth.tails ? mine : succeededCompletely;
      }
      if (depth.tails) {
        lastTailsNanos = lastBeganNanos;
      }
      metrics.refreshed(depth.tails, System.nanoTime() - lastBeganNanos);
      return mine;
    } finally {
      running.unlock();
    }
  }

  private void run(long number, Depth depth) throws IOException {
    Set<String> gone = new HashSet<>();
    for (int attempt = 1; !listAndRead(number, depth, gone); attempt++) {
      if (attempt == ATTEMPTS) {
        throw new IOException(
            "Merged files of "
                + storage.checkpoint()
                + " disappeared while they were read, "
                + ATTEMPTS
                + " times in a row; try again");
      }
    }
  }

  /**
   * Lists and reads.
   *
   * @param gone names of files with live segments that this refresh has found missing so far; added to
   * @return false where the refresh has to begin again: a listed file was unlinked before it was read, or a known file
   *     is gone and what lived in it is nowhere. It was written elsewhere before, but perhaps to a place that this
   *     refresh had already read
   */
  private boolean listAndRead(long number, Depth depth, Set<String> gone) throws IOException {
    long beganMs = rules.now().monotonicMs();
    List<MergedFile> before = index.files().stream().filter(MergedFile::seen).toList();
    // What was lost was moved while the directory was listed, so that is not left to one listing again.
    boolean twice = depth.twice || !gone.isEmpty();
    Storage.Listing listing = twice ? storage.listAll() : storage.list();
    isPaged = listing.mayBePaged();
    long newestModification = listing.files().stream().mapToLong(FileStatus::getModificationTime).max().orElse(0);
    Map<String, FileStatus> listed = new LinkedHashMap<>();
    listing.files().forEach(status -> listed.put(status.getPath().getName(), status));
    readIndexOnly(listed, newestModification, number);
    List<Callable<Boolean>> reads = new ArrayList<>();
    listed.forEach(
        (name, status) -> {
          MergedFile known = index.file(name);
          // What was lost may be in a group whose report is under way.
          boolean asReported = gone.isEmpty();
          if (known == null
              ? !unreadable.contains(name)
              : mustBeRead(known, status, newestModification, depth.tails, asReported)) {
            IndexReader.Listed file = new IndexReader.Listed(status, newestModification, number);
            reads.add(() -> reader.read(file, known, Map.of()));
          }
        });
    String what = "the indexes of " + storage.checkpoint() + " were read";
    if (Parallel.all(threads, Parallel.READS, reads, what).contains(false)) {
      return false;
    }
    boolean beginsAgain = false;
    for (MergedFile file : before) {
      // What lived in it may live in a tail that only a complete refresh reads.
      if (!listed.containsKey(file.name()) && (depth.tails || index.referenceCount(file) == 0)) {
        confirmGone(file);
        List<Segment> lived = index.liveSegments(file);
        if (!lived.isEmpty()) {
          timesUnsettled++;
          unsettled = true;
        }
        forget.accept(file);
        beginsAgain |= lived.stream().anyMatch(this::isLost) && gone.add(file.name());
      }
    }
    if (beginsAgain) {
      return false;
    }
    // Last: a relocation whose end shows here made its copies durable before, in files that were read above.
    markers.listed(listing.markers(), number, depth.tails, twice || !isPaged, beganMs);
    pins.listed(listing.pins());
    if (!(before.isEmpty() && gone.isEmpty()) && index.files().isEmpty()) {
      // The checkpoint was deleted. Something else may be put in its place.
      reader.bornMerged(!storage.hasPlainState());
    }
    return true;
  }

  /**
   * Asks whether a file that is not listed exists, where others have no reason to unlink it: this process wrote it, or
   * something lives in it as far as is known. That is rare, and a listing that leaves files out would have their
   * deletions forgotten (rule 8).
   */
  private void confirmGone(MergedFile file) throws IOException {
    boolean asks = file.writerId() == writerId || index.referenceCount(file) > 0;
    if (asks && storage.exists(file.name())) {
      throw new IOException(
          "The listing of "
              + storage.directory()
              + " leaves out "
              + file.name()
              + ", which exists; the listing is not used");
    }
  }

  /** Whether the index has neither a gone segment's copy nor anything newer: it was deleted, or its copy was missed. */
  private boolean isLost(Segment gone) {
    Segment found = index.find(gone.path());
    return found == null || gone.beats(found);
  }

  /** Reads index-only files first, because the files that they repeat need not be opened then. */
  private void readIndexOnly(Map<String, FileStatus> listed, long newestModification, long number)
      throws IndexReader.CutOffException {
    for (Map.Entry<String, FileStatus> file : listed.entrySet()) {
      String name = file.getKey();
      if (name.endsWith(Storage.INDEX_SUFFIX) && index.file(name) == null && !unreadable.contains(name)) {
        try {
          reader.read(new IndexReader.Listed(file.getValue(), newestModification, number), null, listed);
        } catch (IndexReader.CutOffException e) {
          throw e;
        } catch (IOException e) {
          unreadable.add(name);
          LOG.warn(
              "Could not read the index-only file {} of {}; reading the files that it repeats instead. What to"
                  + " do: if"
                  + " it goes on, pyspark-statestore consolidate writes another one",
              name,
              storage.checkpoint(),
              e);
        }
      }
    }
  }

  /**
   * @param asReported whether what writers report is taken for all that they have written
   */
  private boolean mustBeRead(
      MergedFile file, FileStatus status, long newestModification, boolean complete, boolean asReported) {
    boolean changed = file.listed(status.getLen(), status.getModificationTime(), newestModification);
    // What its writer has reported need not be read. What is longer was not reported, or not yet.
    boolean isReported = asReported && file.isReported();
    boolean looksDifferent = changed && !(isReported && status.getLen() <= file.size());
    if (isReported) {
      return rules.mustBeRead(file, looksDifferent, false);
    }
    if ("file".equals(status.getPath().toUri().getScheme())) {
      return rules.mustBeRead(file, looksDifferent || complete && status.getLen() != file.size(), false);
    }
    // HDFS lists an open file with the length of its first flush, so only a read shows its end.
    return rules.mustBeRead(file, looksDifferent, complete);
  }
}
