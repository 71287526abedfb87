package io.pyspark.statestore.rocks;

import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.rocksdb.CompactionJobInfo;
import org.rocksdb.CompactionOptions;
import org.rocksdb.CompressionType;
import org.rocksdb.LiveFileMetaData;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Compacts databases of which only parts of files are on the disk. RocksDB's own compaction is off there: it would fail
 * at the first hole, and fail all later writes. Here the files are chosen by RocksDB's rules ({@link Levels}), all of
 * them is fetched and stays ({@link LazyFiles#hold}), and then RocksDB is told to compact exactly these.
 *
 * <p>One at a time is done for all stores of a process, and not in the first five seconds: what a compaction fetches,
 * and the processor that it takes, are then missing in the first batch after a restart. What is fetched is bounded for
 * all of them together. One that gets no answer holds no other up, and one that fails is tried again, less and less
 * often. Whoever closes a database has its compaction given up. Nothing is lost by that: the files that were read are
 * still those of the database.
 */
final class Compactor {
  private static final Logger LOG = LoggerFactory.getLogger(Compactor.class);

  /** With those that a file system does not answer; others take their place. */
  private static final int MOST_THREADS = 8;

  private static final ThreadPoolExecutor THREADS =
      new ThreadPoolExecutor(
          1,
          MOST_THREADS,
          5,
          TimeUnit.SECONDS,
          new LinkedBlockingQueue<>(),
          Threads.daemons("pyspark-statestore-compactor"));

  /** Whoever gets nothing for so long is not waited for. */
  static volatile long stuckNanos = TimeUnit.SECONDS.toNanos(10);

  /** What compactions that fetch have got, and since when they have no more. */
  private static final Map<Compactor, Fetch> FETCHES = new ConcurrentHashMap<>();

  /** When compactions may fetch again. */
  static final AtomicLong FREE = new AtomicLong(System.nanoTime());

  private static final long FIRST_REST_NANOS = TimeUnit.MILLISECONDS.toNanos(500);
  private static final int MOST_DOUBLINGS = 6;

  private static final AtomicLong DONE = new AtomicLong();

  /** There is a look so often at most. */
  static volatile long lookNanos = TimeUnit.SECONDS.toNanos(1);

  /** A database has so long after it was opened for the reads that its query waits for. */
  static volatile long afterOpenNanos = TimeUnit.SECONDS.toNanos(5);

  /**
   * Unless level 0 has so many times the files at which it is compacted: it grows where a store is closed again before
   * that time is over, again and again.
   */
  private static final int MANY_OF_LEVEL_0 = 3;

  /** A commit waits where level 0 has so many times the files at which it is compacted. */
  private static final int MOST_OF_LEVEL_0 = 4;

  /** It does not wait for longer: other stores, or a full disk, may be in the way of its compaction. */
  private static final long MOST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(20);

  private static final long SAY_NANOS = TimeUnit.MINUTES.toNanos(10);

  private record Fetch(long arrived, long sinceNanos) {}

  private final LazyRocksDB database;

  /** What is said after the database was closed must not ask it: that ends the process. */
  private final String name;

  private final LazyFiles files;
  private final CompressionType compression;
  private final long tableBytes;
  private final Levels.Shape shape;
  private final long bytesPerSecond;
  private long lookedNanos = System.nanoTime() - lookNanos;
  private long restUntilNanos;
  private boolean isBusy;

  /** Counts what has come for its compactions. What the store's reads fetch does not count. */
  private final AtomicLong arrived = new AtomicLong();

  /** Whether a commit waits for it. */
  private boolean isUrgent;

  /** How often it has failed since it was done. */
  private int failures;

  private int filesOfLevel0;
  private long saidLateNanos = System.nanoTime() - SAY_NANOS;

  /**
   * Of an open database.
   *
   * @param options that it was opened with
   * @param bytesPerSecond that compactions fetch; 0 without a bound
   */
  Compactor(LazyRocksDB database, LazyFiles files, Options options, long bytesPerSecond) {
    this.database = database;
    name = database.getName();
    this.files = files;
    // Spark frees the options with the database.
    compression = options.compressionType();
    tableBytes = options.targetFileSizeBase();
    this.bytesPerSecond = bytesPerSecond;
    shape =
        new Levels.Shape(
            options.numLevels(),
            Math.max(1, options.level0FileNumCompactionTrigger()),
            options.maxBytesForLevelBase(),
            options.maxBytesForLevelMultiplier(),
            options.levelCompactionDynamicLevelBytes());
    filesOfLevel0 = filesOfLevel0();
    boolean isLong = filesOfLevel0 >= MANY_OF_LEVEL_0 * shape.level0Trigger();
    restUntilNanos = System.nanoTime() + (isLong ? 0 : afterOpenNanos);
  }

  private int filesOfLevel0() {
    try {
      return database
          .whileOpen(opened -> Integer.parseInt(opened.getProperty("rocksdb.num-files-at-level0")))
          .orElse(0);
    } catch (RocksDBException e) {
      return 0; // the first look says it
    }
  }

  /** Has another thread look whether there is something to compact, where none has for a while. */
  void lookIfDue() {
    synchronized (this) {
      long now = System.nanoTime();
      if (now - lookedNanos < lookNanos || now - restUntilNanos < 0 || !isUrgent && now - FREE.get() < 0) {
        return;
      }
      lookedNanos = now;
      goOn();
      if (isBusy) {
        return;
      }
      isBusy = true;
    }
    try {
      THREADS.execute(this::run);
    } catch (OutOfMemoryError e) {
      // The process is at its limit of threads.
      ended(e);
    }
  }

  /** Has as many threads as there are that wait for a file system, and one more. */
  private static void goOn() {
    long now = System.nanoTime();
    FETCHES.replaceAll(
        (each, fetch) -> {
          long arrived = each.arrived.get();
          return arrived == fetch.arrived ? fetch : new Fetch(arrived, now);
        });
    int stuck = (int) FETCHES.values().stream().filter(fetch -> now - fetch.sinceNanos > stuckNanos).count();
    try {
      THREADS.setCorePoolSize(Math.min(MOST_THREADS, 1 + stuck));
    } catch (OutOfMemoryError e) {
      LOG.info("No thread can be started for compactions now", e);
    }
  }

  /** Waits while level 0 has far too many files, which every read would have to look into. */
  void awaitLevel0() throws IOException {
    int most = MOST_OF_LEVEL_0 * shape.level0Trigger();
    long began = System.nanoTime();
    synchronized (this) {
      if (filesOfLevel0 < most || failures > 0) {
        return;
      }
    }
    LOG.info("A commit waits: level 0 of {} has {} files or more", name, most);
    while (System.nanoTime() - began < MOST_WAIT_NANOS) {
      synchronized (this) {
        isUrgent = true;
        restUntilNanos = System.nanoTime();
        lookedNanos = restUntilNanos - lookNanos;
      }
      lookIfDue();
      try {
        synchronized (this) {
          if (filesOfLevel0 < most) {
            return;
          }
          if (failures > 0) {
            break;
          }
          wait(100);
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("Interrupted while level 0 was compacted");
      }
    }
    sayLate(most, began);
  }

  private synchronized void sayLate(int most, long now) {
    if (now - saidLateNanos >= SAY_NANOS) {
      saidLateNanos = now;
      LOG.warn(
          "Level 0 of {} has {} files or more, so its reads are slow: compactions do not keep up. What to do: raise"
              + " local.sizeLimit or restore.maxBytesPerSecond, and look whether the local disk is full",
          name,
          most);
    }
  }

  private void run() {
    Throwable failure = null;
    try {
      boolean isUrgentNow;
      synchronized (this) {
        isUrgentNow = isUrgent;
      }
      // Others may have fetched something since this one was asked for.
      if (isUrgentNow || System.nanoTime() - FREE.get() >= 0) {
        Optional<Levels.Choice> choice = database.whileOpen(this::choose).orElse(Optional.empty());
        if (choice.isPresent()) {
          // What is read is here whole, and what is made of it as well.
          files.awaitRoom(2 * choice.get().bytes(), database::isClosing);
          compact(choice.get());
        }
        files.tidy();
      }
    } catch (InterruptedException | IOException | RocksDBException | RuntimeException | Error e) {
      failure = e;
    }
    ended(failure);
  }

  /** Nothing is done any more, or nothing was begun. */
  private void ended(Throwable failure) {
    int before;
    synchronized (this) {
      before = failures;
      isBusy = false;
      isUrgent = false;
      if (failure != null) {
        failures++;
        restUntilNanos = System.nanoTime() + (FIRST_REST_NANOS << Math.min(before, MOST_DOUBLINGS));
      }
      notifyAll();
    }
    if (failure != null && before == 0) {
      LOG.info("{} is not compacted now; that is tried again", name, failure);
    }
  }

  private Optional<Levels.Choice> choose(RocksDB opened) {
    List<Levels.Table> tables = new ArrayList<>();
    for (LiveFileMetaData file : opened.getLiveFilesMetaData()) {
      String name = file.fileName().substring(file.fileName().lastIndexOf('/') + 1);
      tables.add(new Levels.Table(name, file.level(), file.size(), file.smallestKey(), file.largestKey()));
    }
    Levels levels = new Levels(shape, tables);
    synchronized (this) {
      filesOfLevel0 = levels.filesOfLevel0();
      notifyAll();
    }
    return levels.choose();
  }

  private void compact(Levels.Choice choice) throws IOException, RocksDBException {
    List<String> names = choice.inputs().stream().map(Levels.Table::name).toList();
    try (LazyFiles.Hold hold = hold(names);
        CompactionOptions how = new CompactionOptions();
        CompactionJobInfo done = new CompactionJobInfo()) {
      how.setCompression(compression);
      how.setOutputFileSizeLimit(tableBytes);
      if (!hold.isWhole()) {
        return; // it is being closed
      }
      if (database.whileOpen(opened -> opened.compactFiles(how, names, choice.outputLevel(), -1, done)).isEmpty()) {
        return; // it was closed meanwhile
      }
      DONE.incrementAndGet();
      boolean hasMore = database.whileOpen(this::choose).orElse(Optional.empty()).isPresent();
      synchronized (this) {
        failures = 0;
        lookedNanos = hasMore ? System.nanoTime() - lookNanos : lookedNanos;
      }
    }
  }

  /** Has all of some files here, and counts what that takes of what compactions may fetch. */
  private LazyFiles.Hold hold(List<String> names) throws IOException {
    long began = System.nanoTime();
    FETCHES.put(this, new Fetch(arrived.get(), began));
    try {
      LazyFiles.Hold hold = files.hold(names, database::isClosing, arrived::incrementAndGet);
      if (bytesPerSecond > 0) {
        FREE.accumulateAndGet(began + (long) (1e9 * hold.fetched() / bytesPerSecond), Math::max);
      }
      return hold;
    } finally {
      FETCHES.remove(this);
    }
  }

  /** How many compactions this process has done. */
  static long done() {
    return DONE.get();
  }
}
