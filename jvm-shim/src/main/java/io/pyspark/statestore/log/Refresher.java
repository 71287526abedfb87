package io.pyspark.statestore.log;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.Group;
import io.pyspark.statestore.format.MergedFileReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Brings the index up to date with the file system: lists the merged files once, reads the indexes of new ones and the
 * new tails of those that others append to, forgets those that are gone.
 *
 * <p>Questions that come while a refresh runs share the next one: an answer always rests on a refresh that began after
 * the question.
 */
final class Refresher {
  private static final Logger LOG = LoggerFactory.getLogger(Refresher.class);
  /** How many recent occasions are remembered, so that all tasks of one stage share one refresh. */
  private static final int REMEMBERED = 256;
  /** How often a refresh begins again because files went away under it. */
  private static final int ATTEMPTS = 10;
  /** How often one file is opened to read what is new in it, and for how long. */
  private static final int READS = 10;
  private static final long READ_NANOS = 10_000_000_000L;

  private final LogContext context;
  private final Executor readers;
  private final Consumer<MergedFile> onGone;
  private final ReentrantLock running = new ReentrantLock();
  /** By occasion, the number of the refresh that serves it. */
  private final Map<Object, Long> occasions = new LinkedHashMap<>() {
    private static final long serialVersionUID = 1L;

    @Override
    protected boolean removeEldestEntry(Map.Entry<Object, Long> eldest) {
      return size() > REMEMBERED;
    }
  };
  private final Intents intents;
  private final Pins pins;
  /** Index-only files that are damaged: they only save reads. */
  private final Set<String> unreadable = ConcurrentHashMap.newKeySet();
  /** Number of the newest refresh that has begun, of any kind. */
  private volatile long begun;
  private long succeeded;
  private volatile long succeededCompletely;
  private volatile long lastBeganNanos;
  private volatile long lastCompleteNanos = System.nanoTime();
  private volatile boolean bornMerged;
  private volatile long newestModification;

  Refresher(LogContext context, Intents intents, Pins pins, Executor readers, Consumer<MergedFile> onGone) {
    this.context = context;
    this.intents = intents;
    this.pins = pins;
    this.readers = readers;
    this.onGone = onGone;
  }

  /** Whether a merged file says that this checkpoint never had plain state files. */
  boolean bornMerged() {
    return bornMerged;
  }

  /** Whether plain state files may exist in this checkpoint, beside the merged ones (rule 10). */
  boolean mayHavePlainFiles() {
    return !bornMerged;
  }

  void bornMerged(boolean value) {
    bornMerged = value;
  }

  /**
   * Makes sure that for each of these occasions one refresh began after the first call for it.
   *
   * @param asked each equal for all questions that may share an answer
   */
  void refreshFor(Object... asked) throws IOException {
    long needed = 0;
    synchronized (occasions) {
      for (Object occasion : asked) {
        needed = Math.max(needed, occasions.computeIfAbsent(occasion, o -> begun + 1));
      }
    }
    refresh(true, needed);
  }

  /** Looks at the listing where the view is older than {@code maxAgeMs}. */
  void refreshIfOlderThan(long maxAgeMs) throws IOException {
    if ((System.nanoTime() - lastBeganNanos) / 1_000_000 > maxAgeMs) {
      refreshListing();
    }
  }

  /** Number of the newest refresh that has begun. */
  long number() {
    return begun;
  }

  /**
   * Whether maintenance may read the tails of all files that others have open: on average one of them a second, so that
   * a thousand executors do not keep a NameNode busy with looking at each other.
   */
  boolean mayReadTails() {
    long open = context.index().files().stream().filter(f -> f.writer() == MergedFile.Writer.OTHER).count();
    return System.nanoTime() - lastCompleteNanos >= open * 1_000_000_000L;
  }

  /**
   * Returns after a complete refresh that began after this call: a listing, and the tails of all files that others may
   * append to.
   *
   * @return its number
   */
  long refresh() throws IOException {
    return refresh(true, begun + 1);
  }

  /**
   * Returns after a refresh that began after this call. It reads the indexes of files that are new in the listing or look
   * different in it; what others have appended since to files that stay open may be missing, so it only deletes less.
   */
  void refreshListing() throws IOException {
    refresh(false, begun + 1);
  }

  private long refresh(boolean complete, long needed) throws IOException {
    if (succeededCompletely >= needed) {
      return succeededCompletely;
    }
    running.lock();
    try {
      long newest = complete ? succeededCompletely : succeeded;
      if (newest >= needed) {
        return newest;
      }
      long mine = begun + 1;
      begun = mine;
      lastBeganNanos = System.nanoTime();
      run(mine, complete);
      succeeded = mine;
      if (complete) {
        succeededCompletely = mine;
        lastCompleteNanos = lastBeganNanos;
      }
      context.metrics().refreshed(complete, System.nanoTime() - lastBeganNanos);
      return mine;
    } finally {
      running.unlock();
    }
  }

  private void run(long number, boolean complete) throws IOException {
    Set<String> gone = new HashSet<>();
    for (int attempt = 1; !look(number, complete, gone); attempt++) {
      if (attempt == ATTEMPTS) {
        throw new IOException("Merged files of " + context.checkpoint() + " went away while they were read, " + ATTEMPTS
            + " times in a row; try again");
      }
    }
  }

  /**
   * Lists and reads.
   *
   * @param gone names of files with live segments that earlier looks of this refresh have missed; added to
   * @return false where a file that was listed was unlinked before it was read, or one that was known has gone and what
   *     lived in it is nowhere: it has been written elsewhere before that, but perhaps to where this refresh has looked
   *     already
   */
  private boolean look(long number, boolean complete, Set<String> gone) throws IOException {
    long beganMs = context.now().monotonicMs();
    List<MergedFile> before = context.index().files().stream().filter(MergedFile::seen).toList();
    Storage.Listing listing = context.storage().listAll();
    Map<String, FileStatus> listed = new LinkedHashMap<>();
    listing.files().forEach(status -> listed.put(status.getPath().getName(), status));
    newestModification =
        listing.files().stream().mapToLong(FileStatus::getModificationTime).max().orElse(0);
    readIndexOnly(listed, number);
    List<Callable<Boolean>> reads = new ArrayList<>();
    listed.forEach((name, status) -> {
      MergedFile known = context.index().file(name);
      if (known == null ? !unreadable.contains(name) : mayHaveGrown(known, status, complete)) {
        reads.add(() -> read(name, known, status, number));
      }
    });
    if (!runAll(reads)) {
      return false;
    }
    boolean looksAgain = false;
    for (MergedFile file : before) {
      // What lived in it lives in a tail that only a complete refresh reads.
      if (!listed.containsKey(file.name()) && (complete || context.index().referenceCount(file) == 0)) {
        confirmGone(file);
        List<Segment> lived = context.index().liveSegments(file);
        context.index().remove(file);
        onGone.accept(file);
        looksAgain |= lived.stream().anyMatch(this::isLost) && gone.add(file.name());
      }
    }
    if (looksAgain) {
      return false;
    }
    // Last: whose end is noticed here has made its copies durable before, in files that have been read above.
    intents.listed(listing.intents(), number, complete, beganMs);
    pins.listed(listing.pins());
    if (!(before.isEmpty() && gone.isEmpty()) && context.index().files().isEmpty()) {
      // The checkpoint was deleted; who knows what is put in its place.
      bornMerged = !context.storage().hasPlainState();
    }
    return true;
  }

  /**
   * Others hardly ever unlink what this process has written, or anything in which something lives as far as is known, so
   * asking once more costs nothing; a listing that leaves files out would have their deletions forgotten (rule 8).
   */
  private void confirmGone(MergedFile file) throws IOException {
    boolean asks = file.writerId() == context.writerId() || context.index().referenceCount(file) > 0;
    if (asks && context.storage().exists(file.name())) {
      throw new IOException("The listing of " + context.storage().directory() + " leaves out " + file.name()
          + ", which exists; nothing is concluded from it");
    }
  }

  /** Whether nothing in the view is what a segment was, or newer: it was deleted, or a copy of it has been missed. */
  private boolean isLost(Segment gone) {
    Segment found = context.index().find(gone.path());
    return found == null || gone.beats(found);
  }

  /** Files that repeat the indexes of others come first: what they cover need not be opened. */
  private void readIndexOnly(Map<String, FileStatus> listed, long number) throws CutOffException {
    for (Map.Entry<String, FileStatus> file : listed.entrySet()) {
      String name = file.getKey();
      if (name.endsWith(Storage.INDEX_SUFFIX) && context.index().file(name) == null && !unreadable.contains(name)) {
        try {
          read(name, null, file.getValue(), number, listed);
        } catch (CutOffException e) {
          throw e;
        } catch (IOException e) {
          unreadable.add(name);
          LOG.warn("{} of {} cannot be read; the files that it repeats are read instead", name, context.checkpoint(),
              e);
        }
      }
    }
  }

  private boolean mayHaveGrown(MergedFile file, FileStatus status, boolean complete) {
    boolean looksDifferent = file.listed(status.getLen(), status.getModificationTime(), newestModification);
    return switch (file.writer()) {
      case THIS_PROCESS -> false;
      case NOBODY -> !file.wholeIndexRead();
      // The listed length of a file that is open on HDFS says nothing, so its end has to be looked at.
      case OTHER -> looksDifferent
          || complete && (isLocal(status) ? status.getLen() != file.size() : !context.isClosed(file))
          || file.needsAnotherLook(context.now(), context.options().closedAfterMs());
    };
  }

  private static boolean isLocal(FileStatus status) {
    return "file".equals(status.getPath().toUri().getScheme());
  }

  private boolean read(String name, MergedFile known, FileStatus status, long number) throws IOException {
    return read(name, known, status, number, Map.of());
  }

  /** Reads a file's index as far as it is not known; false where the file does not exist any more. */
  private boolean read(
      String name, MergedFile known, FileStatus status, long number, Map<String, FileStatus> mayBeCovered)
      throws IOException {
    long beganMs = context.now().monotonicMs();
    try {
      MergedFileReader.Parsed parsed = parse(name, known, status);
      for (Group group : parsed.groups()) {
        requireWhole(name, group, mayBeCovered);
      }
      MergedFile file = known;
      if (file == null) {
        file = context.index().addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, context.now()));
        if (file.writer() == MergedFile.Writer.THIS_PROCESS) {
          return true;
        }
        file.listed(status.getLen(), status.getModificationTime(), newestModification);
      }
      long trailer = file.lastTrailer();
      long lastStamp = parsed.header() == null ? 0 : parsed.header().createdMs() << 16;
      for (Group group : parsed.groups()) {
        apply(file, group, mayBeCovered, number);
        context.clock().observe(group.trailer().groupStamp());
        trailer = group.trailerOffset();
        lastStamp = Math.max(lastStamp, group.trailer().groupStamp());
      }
      if (parsed.groups().isEmpty() && trailer > 0) {
        lastStamp = Math.max(lastStamp, file.lastStamp());
      }
      file.accounted(parsed.accounted());
      file.read(parsed.length(), trailer, parsed.isSealed() || file.writer() == MergedFile.Writer.NOBODY,
          lastStamp, beganMs, context.now().monotonicMs(), number);
      file.ignored(parsed.length() - parsed.validLength());
      if (parsed.header() != null && HeaderMeta.saysBornMerged(parsed.header().metaJson())) {
        bornMerged = true;
      }
      return true;
    } catch (FileNotFoundException e) {
      return false;
    }
  }

  /**
   * Reads the groups that are not known. Where somebody has appended to the file since it was opened, a file system may
   * refuse to read on in it (ABFS does, with "412 ConditionNotMet"), so it is opened anew.
   */
  private MergedFileReader.Parsed parse(String name, MergedFile known, FileStatus status) throws IOException {
    boolean isClosed = known != null && context.isClosed(known);
    long begin = System.nanoTime();
    for (int attempt = 1; ; attempt++) {
      FSDataInputStream in = context.storage().openUnclosed(name, isClosed, context.options().closedAfterMs());
      try (in) {
        return MergedFileReader.readSince(
            Storage.ranges(context.storage().path(name).toString(), in, status.getLen()),
            known == null ? 0 : known.lastTrailer());
      } catch (FileNotFoundException | StateStoreFilesException e) {
        throw e;
      } catch (IOException e) {
        boolean late = attempt == READS || System.nanoTime() - begin > READ_NANOS;
        if (late || Thread.currentThread().isInterrupted()) {
          throw e;
        }
      }
    }
  }

  /** A file that was sealed was cut off since: nothing in it says so. */
  private static final class CutOffException extends StateStoreFilesException {
    private static final long serialVersionUID = 1L;

    CutOffException(String message) {
      super(Id.PSS_CORRUPT_INDEX, message);
    }
  }

  /** Files that an index-only file speaks for, and that are not opened therefore, are as long as their segments need. */
  private void requireWhole(String index, Group group, Map<String, FileStatus> mayBeCovered) throws CutOffException {
    for (Entry entry : mayBeCovered.isEmpty() || !group.trailer().isIndexOnly() ? List.<Entry>of() : group.entries()) {
      FileStatus covered = entry.fileRef() == 0 ? null : mayBeCovered.get(group.names().get(entry.fileRef() - 1));
      if (entry.isPut() && covered != null && covered.getLen() < entry.offset() + entry.length()) {
        throw new CutOffException(covered.getPath() + " is damaged at offset " + covered.getLen() + ": it was sealed, as "
            + index + " says, and was cut off since. Restore the file from a copy; nothing was changed or deleted.");
      }
    }
  }

  private void apply(MergedFile file, Group group, Map<String, FileStatus> mayBeCovered, long number) {
    if (group.trailer().isForeign()) {
      file.references(group.names(), group.entries());
    }
    if (!group.trailer().isIndexOnly()) {
      context.index().apply(file, group.entries());
      return;
    }
    file.indexOnly(group.names());
    Map<Integer, List<Entry>> byFile = new LinkedHashMap<>();
    group.entries().forEach(e -> byFile.computeIfAbsent(e.fileRef(), r -> new ArrayList<>()).add(e));
    for (int ref = 1; ref <= group.names().size(); ref++) {
      String name = group.names().get(ref - 1);
      FileStatus covered = mayBeCovered.get(name);
      MergedFile owner = context.index().file(name);
      boolean first = owner == null && covered != null;
      if (first) {
        owner = context.index().addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, context.now()));
      }
      if (owner != null && owner.writer() != MergedFile.Writer.THIS_PROCESS) {
        List<Entry> entries = byFile.getOrDefault(ref, List.of());
        context.index().apply(owner, entries);
        if (first) {
          owner.readElsewhere(covered.getLen(), entries.stream().mapToLong(Entry::stamp).max().orElse(0), number);
        }
      }
    }
  }

  private boolean runAll(List<Callable<Boolean>> reads) throws IOException {
    List<FutureTask<Boolean>> futures = Parallel.start(readers, context.options().readParallelism(), reads);
    try {
      boolean allThere = true;
      for (FutureTask<Boolean> future : futures) {
        allThere &= future.get();
      }
      return allThere;
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException io ? io : new IOException(e.getCause());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while reading the indexes of " + context.checkpoint());
    } finally {
      futures.forEach(f -> f.cancel(false));
    }
  }
}
