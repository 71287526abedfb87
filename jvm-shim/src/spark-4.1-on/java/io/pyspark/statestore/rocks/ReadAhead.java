package io.pyspark.statestore.rocks;

import io.pyspark.statestore.files.Parallel;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import io.pyspark.statestore.read.StoreAhead;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDBException;

/**
 * Fetches the blocks that keys are in before somebody reads them one after the other.
 *
 * <p><b>Where files have holes</b>, RocksDB itself says where a key is: it is read, and where its block is a hole the
 * read fails at once and names the block. What is missing for all keys is fetched together, several parts at a time;
 * then the keys are read again that were not complete, because a row may be in one of several files.
 *
 * <p><b>Where they are whole</b>, the keys are read by several threads, if reads were slow: see {@link DiskReads}.
 *
 * <p>A key that is complete is in RocksDB's block cache.
 */
public final class ReadAhead implements StoreAhead<AskedKey> {
  /** Levels of a database, and blocks of a row or a prefix, that are fetched ahead. The rest is whoever reads it's. */
  private static final int ROUNDS = 8;

  /** A prefix whose rows are in several blocks has so many bytes more fetched in each further round, twice as many. */
  private static final int AHEAD = 16 << 10;

  /** So many neighbours in the order of keys are read by one thread, because they may be in one block. */
  private static final int NEIGHBOURS = 8;

  /** Where one key in so many was asked for, all files that have half of their bytes are wanted whole. */
  private static final int MANY = 4;

  /** A key takes about so much of RocksDB's cache: the block of its row, and those of indexes and filters. */
  private static final int CACHE_BYTES_OF_KEY = 8 << 10;

  private static final ExecutorService READERS =
      Executors.newCachedThreadPool(Threads.daemons("pyspark-statestore-disk-ahead"));

  /** Tests change what keys there are, and let it fail. */
  static volatile UnaryOperator<List<AskedKey>> tampering = UnaryOperator.identity();

  private final Supplier<AskedRocksDB> database;

  /** The database; null until something is to be read ahead. */
  private volatile AskedRocksDB asked;

  /** Null where the database was opened with whole files. */
  private final LazyFiles files;

  private final DiskReads disk;

  /** How many keys were asked for where files had holes, each time that one was. */
  private final AtomicLong keysAsked = new AtomicLong();

  /**
   * Of a database.
   *
   * @param database asked once something is to be read ahead, by the thread that uses it
   * @param files null where the database was opened with whole files
   * @param disk null where its statistics are not known
   */
  public ReadAhead(Supplier<AskedRocksDB> database, LazyFiles files, DiskReads disk) {
    this.database = database;
    this.files = files;
    this.disk = disk;
  }

  /** Whether reads would wait: something of the files is missing, or the disk is slow. */
  @Override
  public boolean isNeeded() {
    return hasHoles() || disk != null && disk.areSlow();
  }

  private boolean hasHoles() {
    return files != null && !files.isWhole();
  }

  /** Counts the reads that had to wait for what was missing. */
  @Override
  public long waits() {
    return files == null ? 0 : files.waits();
  }

  /** For how many keys at a time, so that RocksDB's cache still has what was read ahead for the first one. */
  @Override
  public long mostKeys(int windows) {
    long bytes = hasHoles() ? 0 : asked().cacheBytes();
    return bytes <= 0 ? Long.MAX_VALUE : Math.max(1, bytes / CACHE_BYTES_OF_KEY / windows);
  }

  @Override
  public List<AskedKey> keysOf(BooleanSupplier reads, long bytes) {
    return tampering.apply(asked().keysOf(reads, bytes));
  }

  private AskedRocksDB asked() {
    if (asked == null) {
      asked = database.get();
    }
    return asked;
  }

  @Override
  public LookAhead fetch(Collection<AskedKey> keys, int parallelism, BooleanSupplier isCancelled) throws IOException {
    List<AskedKey> sorted = tampering.apply(new ArrayList<>(new TreeSet<>(keys)));
    return hasHoles() ? fill(sorted, parallelism, isCancelled) : read(sorted, parallelism, isCancelled);
  }

  // ---- holes

  private LookAhead fill(List<AskedKey> keys, int parallelism, BooleanSupplier isCancelled) throws IOException {
    List<AskedKey> left = keys;
    int present = 0;
    int fetched = 0;
    boolean areMany = keysAsked.addAndGet(keys.size()) >= asked.rows() / MANY;
    try (ReadOptions options = new ReadOptions()) {
      for (int round = 0; round < ROUNDS && !left.isEmpty(); round++) {
        Set<LazyFiles.Part> parts = new HashSet<>();
        left = incomplete(left, options, round, parts, isCancelled);
        present = round == 0 ? keys.size() - left.size() : present;
        if (parts.isEmpty() || isCancelled.getAsBoolean()) {
          break;
        }
        fetched += files.fetch(parts, parallelism, areMany, isCancelled);
      }
    }
    return new LookAhead(1, keys.size(), present, fetched);
  }

  /** The keys of which something is missing; adds to the parts what that is. */
  private List<AskedKey> incomplete(
      List<AskedKey> keys, ReadOptions options, int round, Set<LazyFiles.Part> parts, BooleanSupplier isCancelled) {
    List<AskedKey> left = new ArrayList<>();
    for (AskedKey key : keys) {
      if (isCancelled.getAsBoolean()) {
        break;
      }
      LazyFiles.Part part = missingFor(key, options);
      if (part != null) {
        left.add(key);
        long more = key.isPrefix() && round > 0 ? (long) AHEAD << round : 0;
        parts.add(new LazyFiles.Part(part.name(), part.from(), part.to() + more));
      }
    }
    return left;
  }

  /** The part of a file that is missing; null where none is, and where the read failed. */
  private LazyFiles.Part missingFor(AskedKey key, ReadOptions options) {
    try {
      asked.read(key, options);
      return null;
    } catch (RocksDBException e) {
      return Holes.partOf(e);
    }
  }

  // ---- a slow disk

  private LookAhead read(List<AskedKey> keys, int parallelism, BooleanSupplier isCancelled) throws IOException {
    List<Callable<Integer>> tasks = new ArrayList<>();
    for (int at = 0; at < keys.size(); at += NEIGHBOURS) {
      List<AskedKey> some = keys.subList(at, Math.min(at + NEIGHBOURS, keys.size()));
      tasks.add(() -> asked.read(some, isCancelled));
    }
    int slow = Parallel.sum(READERS, parallelism, tasks, "state was read ahead");
    if (disk != null && !isCancelled.getAsBoolean()) {
      disk.asked(slow > 0);
    }
    return new LookAhead(1, keys.size(), Math.max(0, keys.size() - slow), slow);
  }
}
