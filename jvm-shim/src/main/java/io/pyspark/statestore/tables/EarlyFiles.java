package io.pyspark.statestore.tables;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.write.Commits;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The SSTs of one open RocksDB that it has made itself. Each has its name in the checkpoint from the beginning, so it
 * can be uploaded before Spark takes a snapshot and asks for the name. {@link EarlyUploads} does that.
 *
 * <p>Nothing rests on a file's name on the local disk: RocksDB uses its numbers again after a rollback. A name in the
 * checkpoint has a random part, and is given for one file only. Whatever else goes wrong, the file is written with its
 * snapshot, as without all this.
 *
 * <p>RocksDB calls in its own threads, and Spark under its locks. So the monitor is held for a moment only: what a
 * thread does at most while it has it is to unlink a local file.
 */
public final class EarlyFiles implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(EarlyFiles.class);
  private static final String SST = ".sst";

  /** A smaller file is not worth a group of its own. */
  static volatile long smallest = 64 << 10;

  /** What RocksDB deletes sooner is not uploaded. */
  static volatile long graceMs = 2000;

  /** So many names are remembered of files that are gone. */
  private static final int REMEMBERED = 1024;

  /** Those of all stores that are open in this process. */
  static final Set<EarlyFiles> OPEN = ConcurrentHashMap.newKeySet();

  private final org.apache.hadoop.fs.Path stateDirectory;
  private final String store;
  private final Consumer<EarlyFile> unneeded;

  /** Those that RocksDB has, by their names there. */
  private final Map<String, EarlyFile> local = new HashMap<>();

  /**
   * Those that RocksDB has deleted, by the names that they had there. A snapshot that was begun before may have a link
   * to them, and what is missing of that comes from the segment. They stay until two snapshots do without them.
   */
  private final Map<String, EarlyFile> linked = new HashMap<>();

  /** Those of which a snapshot may still rely on the segment, by path. */
  final Map<String, EarlyFile> known = new HashMap<>();

  /** Those of which nothing was done yet, the oldest first. */
  private final Set<EarlyFile> waiting = new LinkedHashSet<>();

  /** What Spark would find in the names of files that are gone, had it made them. */
  private final Map<String, String> suffixes =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, String> eldest) {
          return size() > REMEMBERED;
        }
      };

  private final Forecast forecast = new Forecast(graceMs);

  /** What Spark puts into names for the snapshot that it takes now, or has taken last. */
  private String lastSuffix;

  /** Whether Spark has taken a snapshot of it. One that is only read makes SSTs, too, which nobody needs. */
  private boolean isWritten;

  private boolean isClosed;

  /**
   * Of a store that is not loaded yet.
   *
   * @param stateDirectory {@code <checkpoint>/state}
   * @param store its directory, relative to that
   * @param unneeded deletes the segment of a file that no snapshot is going to name
   */
  public EarlyFiles(org.apache.hadoop.fs.Path stateDirectory, String store, Consumer<EarlyFile> unneeded) {
    this.stateDirectory = stateDirectory;
    this.store = store;
    this.unneeded = unneeded;
    OPEN.add(this);
  }

  // ---- what RocksDB says

  /** RocksDB has made a file, which it will never change. */
  public void created(Path file, long bytes) {
    if (bytes < smallest || !file.toString().endsWith(SST)) {
      return;
    }
    Object identity;
    try {
      identity = PartialFiles.keyOf(file);
    } catch (IOException e) {
      LOG.debug("{} is gone again", file, e);
      return;
    }
    if (identity == null) {
      return; // the disk does not tell files apart
    }
    String name = file.getFileName().toString();
    String base = name.substring(0, name.length() - SST.length());
    String path = store + "/SSTs/" + base + "-" + UUID.randomUUID() + SST;
    EarlyFile made = new EarlyFile(this, file, path, identity, bytes);
    EarlyFile unneeded;
    synchronized (this) {
      if (isClosed) {
        return;
      }
      linked.remove(name);
      unneeded = gone(local.put(name, made));
      known.put(path, made);
      waiting.add(made);
    }
    delete(unneeded);
  }

  /** RocksDB has deleted a file. */
  public void deleted(Path file) {
    EarlyFile unneeded = null;
    synchronized (this) {
      String name = file.getFileName().toString();
      EarlyFile deleted = local.remove(name);
      if (deleted == null) {
        return;
      }
      if (!deleted.isNamed()) {
        forecast.deleted(deleted.bytes(), deleted.createdMs(), EarlyFile.nowMs());
      }
      if (!deleted.isNamed()
          && deleted.state == EarlyFile.State.WRITTEN
          && PartialFiles.isPartial(deleted.identity())) {
        deleted.isGone = true;
        // Whoever has a link keeps the file; this one would keep it on the disk for nobody.
        deleted.release();
        linked.put(name, deleted);
      } else {
        unneeded = gone(deleted);
      }
    }
    delete(unneeded);
  }

  // ---- what Spark asks

  /**
   * Spark takes a snapshot and asks for a file's name in the checkpoint.
   *
   * @param name on the local disk
   * @param suffix what Spark would put into it, one for each snapshot
   * @return null where Spark has to make it
   */
  public synchronized String nameFor(String name, String suffix) {
    isWritten = true;
    if (!suffix.equals(lastSuffix)) {
      lastSuffix = suffix;
      forecast.snapshot(EarlyFile.nowMs());
    }
    EarlyFile file = local.getOrDefault(name, linked.get(name));
    // Spark asks anew for what is published where another snapshot had the name after that one, and was skipped.
    if (file == null || file.state == EarlyFile.State.GIVEN_UP) {
      return null;
    }
    if (!file.isNamed()) {
      forecast.named(file.bytes(), file.createdMs());
    }
    file.suffix = suffix;
    return file.name();
  }

  /**
   * Which snapshot a file belongs to. Spark asks by its name in the checkpoint, to leave alone what waits for its
   * upload.
   *
   * @return null where the name says it
   */
  public synchronized String suffixOf(String name) {
    EarlyFile file = known.get(store + "/SSTs/" + name);
    return file != null && file.isNamed() ? file.suffix : suffixes.get(name);
  }

  /** Another version is about to be put in the place of what RocksDB had open, which is closed. */
  public void loading() {
    List<EarlyFile> unneeded = new ArrayList<>();
    synchronized (this) {
      local.values().forEach(file -> unneeded.add(gone(file)));
      // A copy, as what is forgotten goes from there, too.
      List.copyOf(linked.values()).stream().filter(file -> !file.isNamed()).forEach(file -> unneeded.add(gone(file)));
      local.clear();
      linked.clear();
    }
    unneeded.forEach(EarlyFiles::delete);
  }

  /** The store is closed: no snapshot comes any more, but for one that is being written. */
  @Override
  public void close() {
    OPEN.remove(this);
    List<EarlyFile> unneeded = new ArrayList<>();
    synchronized (this) {
      isClosed = true;
      for (EarlyFile file : known.values()) {
        file.isGone = true;
        file.isUnneeded = true;
        if (file.isNobodys()) {
          unneeded.add(file);
        }
        if (file.state != EarlyFile.State.WRITING && file.publishing == 0) {
          file.state = EarlyFile.State.GIVEN_UP;
          file.release();
        }
      }
      local.clear();
      linked.clear();
      known.clear();
      waiting.clear();
      notifyAll();
    }
    unneeded.forEach(EarlyFiles::delete);
  }

  /** RocksDB has a file no more. Returns it where its segment is to be deleted. */
  private EarlyFile gone(EarlyFile file) {
    if (file == null) {
      return null;
    }
    file.isGone = true;
    waiting.remove(file);
    if (file.isNamed()) {
      // A snapshot that waits has it.
      if (file.state == EarlyFile.State.WAITING) {
        file.state = EarlyFile.State.GIVEN_UP;
      }
      if (file.publishing == 0 && (file.state == EarlyFile.State.PUBLISHED || file.state == EarlyFile.State.GIVEN_UP)) {
        forget(file);
      }
      return null;
    }
    if (file.state == EarlyFile.State.WRITING) {
      file.isUnneeded = true;
      return null;
    }
    forget(file);
    return file.isNobodys() ? file : null;
  }

  private void forget(EarlyFile file) {
    known.remove(file.path());
    linked.values().remove(file);
    if (file.isNamed()) {
      suffixes.put(file.name(), file.suffix);
    }
    file.release();
  }

  /** Deletes the segment of a file that no snapshot is going to name. */
  private static void delete(EarlyFile file) {
    if (file != null) {
      file.owner().unneeded.accept(file);
    }
  }

  /** {@code <checkpoint>/state}. */
  public org.apache.hadoop.fs.Path stateDirectory() {
    return stateDirectory;
  }

  // ---- uploads

  private static List<EarlyFiles> of(org.apache.hadoop.fs.Path stateDirectory) {
    return OPEN.stream().filter(files -> files.stateDirectory.equals(stateDirectory)).toList();
  }

  private static List<EarlyFiles> of(org.apache.hadoop.fs.Path stateDirectory, String store) {
    return OPEN.stream()
        .filter(files -> files.store.equals(store) && files.stateDirectory.equals(stateDirectory))
        .toList();
  }

  /** Whether a store's SSTs are known when they are made. */
  static boolean isKnown(org.apache.hadoop.fs.Path stateDirectory, String store) {
    return !of(stateDirectory, store).isEmpty();
  }

  /**
   * Takes files that have lived long enough, until they have so many bytes.
   *
   * @param isServed whether this process has committed to a store lately
   * @param due gets them, one after the other, so that the caller can say of each that its upload is over
   */
  static void takeDue(
      org.apache.hadoop.fs.Path stateDirectory, Predicate<String> isServed, long mostBytes, List<EarlyFile> due) {
    long bytes = 0;
    for (EarlyFiles files : of(stateDirectory)) {
      synchronized (files) {
        for (EarlyFile file = files.due(isServed);
            file != null && (due.isEmpty() || bytes < mostBytes);
            file = files.due(isServed)) {
          due.add(file);
          files.waiting.remove(file);
          file.state = EarlyFile.State.WRITING;
          bytes += file.bytes();
        }
      }
    }
  }

  /** Whether {@link #takeDue} would take anything. */
  static boolean isAnyDue(org.apache.hadoop.fs.Path stateDirectory, Predicate<String> isServed) {
    for (EarlyFiles files : of(stateDirectory)) {
      synchronized (files) {
        if (files.due(isServed) != null) {
          return true;
        }
      }
    }
    return false;
  }

  /** The oldest file that it is time for; the oldest of all where the disk needs room; or null. */
  private EarlyFile due(Predicate<String> isServed) {
    if (waiting.isEmpty() || !(isWritten || isServed.test(store))) {
      return null;
    }
    if (LocalCache.ofProcess().isWaitingForUploads()) {
      return waiting.iterator().next();
    }
    long nowMs = EarlyFile.nowMs();
    boolean isTime = forecast.isTime(nowMs);
    for (EarlyFile file : waiting) {
      if (nowMs - file.createdMs() >= graceMs && (isTime || file.isNamed())) {
        return file;
      }
    }
    return null;
  }

  /** A file's segment is durable. */
  void written(EarlyFile file, Entry entry) {
    boolean unneeded;
    synchronized (this) {
      file.written(entry);
      unneeded = file.isUnneeded && file.isNobodys();
      if (file.isUnneeded) {
        forget(file);
      }
      notifyAll();
    }
    if (unneeded) {
      delete(file);
    }
  }

  /** The upload of a file is over. If it is not known to be durable, the file is written with its snapshot. */
  static void ended(EarlyFile file) {
    file.owner().failedUnlessWritten(file);
  }

  private synchronized void failedUnlessWritten(EarlyFile file) {
    if (file.state != EarlyFile.State.WRITING) {
      return;
    }
    file.state = EarlyFile.State.GIVEN_UP;
    notifyAll();
    if (file.isGone) {
      forget(file);
    } else {
      file.release();
    }
  }

  // ---- snapshots

  /**
   * Spark hands over a file of a snapshot. Finds out whether it is one that was uploaded, and waits for an upload of it
   * that is under way.
   *
   * @param path in the checkpoint
   * @return whether it is
   */
  static boolean handedOver(org.apache.hadoop.fs.Path stateDirectory, String store, String path, Path file)
      throws IOException {
    boolean isAny = false;
    for (EarlyFiles files : of(stateDirectory, store)) {
      EarlyFile early = files.settled(path);
      if (early != null) {
        boolean isSame = early.isSameAs(file, early.entry());
        synchronized (files) {
          isAny |= isSame;
          if (isSame) {
            early.handedOver();
          } else {
            // What Spark has brought replaces it, so nothing of ours may delete the path any more.
            boolean isNamed = early.state == EarlyFile.State.PUBLISHED || early.mayBeNamed;
            early.state = EarlyFile.State.GIVEN_UP;
            if (isNamed) {
              throw new StateStoreFilesException(
                  Id.PSS_WRITE_FAILED,
                  "A snapshot names state/"
                      + path
                      + " of "
                      + stateDirectory
                      + " already, and "
                      + file
                      + " is another file than the one that was uploaded. Nothing was written. Spark tries again with"
                      + " another name.");
            }
          }
        }
      }
    }
    return isAny;
  }

  /** The file of a path once its upload has ended; null where it was not uploaded. */
  private synchronized EarlyFile settled(String path) throws InterruptedIOException {
    EarlyFile file = known.get(path);
    if (file == null) {
      return null;
    }
    if (file.state == EarlyFile.State.WAITING) {
      file.state = EarlyFile.State.GIVEN_UP;
      waiting.remove(file);
    }
    try {
      while (file.state == EarlyFile.State.WRITING) {
        wait();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while " + path + " was uploaded");
    }
    return file.state == EarlyFile.State.GIVEN_UP ? null : file;
  }

  /**
   * Of what a snapshot names, that which need not come with it. It stays until {@link Publication#ended}.
   *
   * @param isStaged whether Spark has handed a file over for it
   */
  static Publication publication(
      org.apache.hadoop.fs.Path stateDirectory,
      String store,
      Collection<String> named,
      Predicate<String> isStaged,
      Index index) {
    List<EarlyFiles> all = of(stateDirectory, store);
    Map<String, EarlyFile> relied = new HashMap<>();
    for (EarlyFiles files : all) {
      for (String path : named) {
        Segment live = index.find(path);
        boolean comes = isStaged.test(path);
        synchronized (files) {
          EarlyFile file = files.known.get(path);
          // What Spark does not hand over again it takes for uploaded.
          if (file != null && (comes ? file.isReliable(live) : file.state == EarlyFile.State.WRITTEN)) {
            file.publishing++;
            relied.put(path, file);
          }
        }
      }
    }
    return new Publication(all, Set.copyOf(named), relied);
  }

  /**
   * A snapshot that is being written.
   *
   * @param relied the files that do not come with it, by path
   */
  record Publication(List<EarlyFiles> stores, Set<String> named, Map<String, EarlyFile> relied) {
    static final Publication NONE = new Publication(List.of(), Set.of(), Map.of());

    /** Whether a file is in the checkpoint already. */
    boolean leavesOut(String path) {
      return relied.containsKey(path);
    }

    /** What has become of the snapshot. */
    void ended(Commits.Outcome outcome) {
      List<EarlyFile> unneeded = new ArrayList<>();
      relied.values().forEach(file -> file.owner().published(file, outcome, unneeded));
      if (outcome == Commits.Outcome.DURABLE) {
        stores.forEach(files -> files.publishedWithout(named, relied, unneeded));
      }
      unneeded.forEach(EarlyFiles::delete);
    }
  }

  private synchronized void published(EarlyFile file, Commits.Outcome outcome, List<EarlyFile> unneeded) {
    file.publishing--;
    if (outcome == Commits.Outcome.DURABLE) {
      file.state = EarlyFile.State.PUBLISHED;
    }
    file.mayBeNamed |= outcome == Commits.Outcome.UNKNOWN;
    if (file.isGone && file.publishing == 0 && (file.state == EarlyFile.State.PUBLISHED || isClosed)) {
      if (file.isNobodys()) {
        unneeded.add(file);
      }
      forget(file);
    }
  }

  /**
   * A snapshot was published. What it has brought itself is no upload of ours any more, and what RocksDB has deleted is
   * unneeded once a second snapshot does without it: the first may have been taken before the file was made.
   */
  private synchronized void publishedWithout(
      Set<String> named, Map<String, EarlyFile> relied, List<EarlyFile> unneeded) {
    for (EarlyFile file : List.copyOf(known.values())) {
      if (named.contains(file.path())) {
        if (file.state == EarlyFile.State.WRITING) {
          // Spark has not handed it over for this snapshot, and it became visible just now.
          file.mayBeNamed = true;
        } else if (!relied.containsKey(file.path())) {
          waiting.remove(file);
          file.state = EarlyFile.State.GIVEN_UP;
          if (file.isGone) {
            forget(file);
          } else {
            file.release();
          }
        }
      } else if (file.isGone && file.state == EarlyFile.State.WRITTEN && file.publishing == 0 && ++file.leftOut > 1) {
        if (file.isNobodys()) {
          unneeded.add(file);
        }
        forget(file);
      }
    }
  }

  /**
   * The files of a directory that this process has uploaded and no snapshot names yet. Spark must not see them: it
   * takes what is older than all files of its snapshots for an orphan.
   *
   * @param directory relative to {@code state/}
   * @return their paths
   */
  public static Set<String> unpublished(org.apache.hadoop.fs.Path stateDirectory, String directory) {
    if (OPEN.isEmpty() || !directory.endsWith("/SSTs")) {
      return Set.of();
    }
    Set<String> found = new HashSet<>();
    for (EarlyFiles files : of(stateDirectory, directory.substring(0, directory.lastIndexOf('/')))) {
      synchronized (files) {
        files.known.values().stream()
            .filter(file -> file.state == EarlyFile.State.WRITING || file.state == EarlyFile.State.WRITTEN)
            .forEach(file -> found.add(file.path()));
      }
    }
    return found;
  }
}
