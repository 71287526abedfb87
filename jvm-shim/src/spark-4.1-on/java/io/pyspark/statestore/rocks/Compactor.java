package io.pyspark.statestore.rocks;

import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
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
 * <p>One thread does it for all stores of a process, at a bounded rate. Whoever closes a database has its compaction
 * given up. Nothing is lost by that: the files that were read are still those of the database.
 */
final class Compactor {
  private static final Logger LOG = LoggerFactory.getLogger(Compactor.class);

  private static final ExecutorService THREAD =
      Executors.newSingleThreadExecutor(Threads.daemons("pyspark-statestore-compactor"));

  private static final AtomicLong DONE = new AtomicLong();

  /** There is a look so often at most. */
  static volatile long lookNanos = TimeUnit.SECONDS.toNanos(1);

  /** A commit waits where level 0 has so many times the files at which it is compacted. */
  private static final int MOST_OF_LEVEL_0 = 4;

  /** It does not wait for longer: other stores, or a full disk, may be in the way of its compaction. */
  private static final long MOST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(20);

  private static final long SAY_NANOS = TimeUnit.MINUTES.toNanos(10);

  private final LazyRocksDB database;
  private final LazyFiles files;
  private final CompressionType compression;
  private final long tableBytes;
  private final Levels.Shape shape;
  private final long bytesPerSecond;
  private long lookedNanos = System.nanoTime() - lookNanos;
  private long restUntilNanos = System.nanoTime();
  private boolean isBusy;
  private int filesOfLevel0;
  private long saidLateNanos = System.nanoTime() - SAY_NANOS;

  /**
   * Of an open database.
   *
   * @param options that it was opened with
   * @param bytesPerSecond that compactions read; 0 without a bound
   */
  Compactor(LazyRocksDB database, LazyFiles files, Options options, long bytesPerSecond) {
    this.database = database;
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
  }

  /** Has another thread look whether there is something to compact, where none has for a while. */
  void lookIfDue() {
    synchronized (this) {
      long now = System.nanoTime();
      if (isBusy || now - lookedNanos < lookNanos || now - restUntilNanos < 0) {
        return;
      }
      isBusy = true;
      lookedNanos = now;
    }
    THREAD.execute(this::run);
  }

  /** Waits while level 0 has far too many files, which every read would have to look into. */
  void awaitLevel0() throws IOException {
    int most = MOST_OF_LEVEL_0 * shape.level0Trigger();
    long began = System.nanoTime();
    synchronized (this) {
      if (filesOfLevel0 < most) {
        return;
      }
    }
    LOG.info("A commit waits: level 0 of {} has {} files or more", database.getName(), most);
    while (System.nanoTime() - began < MOST_WAIT_NANOS) {
      synchronized (this) {
        restUntilNanos = System.nanoTime();
        lookedNanos = restUntilNanos - lookNanos;
      }
      lookIfDue();
      try {
        synchronized (this) {
          if (filesOfLevel0 < most) {
            return;
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
          database.getName(),
          most);
    }
  }

  private void run() {
    long began = System.nanoTime();
    long bytes = 0;
    try {
      Optional<Levels.Choice> choice = database.whileOpen(this::choose).orElse(Optional.empty());
      if (choice.isPresent()) {
        bytes = choice.get().bytes();
        // What is read is here whole, and what is made of it as well.
        files.awaitRoom(2 * bytes, database::isClosing);
        compact(choice.get());
      }
      files.tidy();
    } catch (InterruptedException | IOException | RocksDBException | RuntimeException | Error e) {
      bytes = Math.max(bytes, 1);
      LOG.info("{} is not compacted now; that is tried again", database.getName(), e);
    } finally {
      synchronized (this) {
        isBusy = false;
        restUntilNanos = began + (bytesPerSecond == 0 ? 0 : (long) (1e9 * bytes / bytesPerSecond));
        if (bytes > 0) {
          lookedNanos = System.nanoTime() - lookNanos;
        }
        notifyAll();
      }
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
    try (LazyFiles.Hold hold = files.hold(names, database::isClosing);
        CompactionOptions how = new CompactionOptions();
        CompactionJobInfo done = new CompactionJobInfo()) {
      how.setCompression(compression);
      how.setOutputFileSizeLimit(tableBytes);
      if (!hold.isWhole()) {
        return; // it is being closed
      }
      database.whileOpen(opened -> opened.compactFiles(how, names, choice.outputLevel(), -1, done));
      DONE.incrementAndGet();
      database.whileOpen(this::choose);
    }
  }

  /** How many compactions this process has done. */
  static long done() {
    return DONE.get();
  }
}
