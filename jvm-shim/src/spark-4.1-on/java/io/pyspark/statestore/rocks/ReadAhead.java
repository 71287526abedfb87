package io.pyspark.statestore.rocks;

import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.function.UnaryOperator;
import org.rocksdb.ReadOptions;

/**
 * Fetches the blocks that keys are in before somebody reads them one after the other.
 *
 * <p>RocksDB itself says where a key is: it is read, and where its block is a hole the read fails at once and names the
 * block. What is missing for all keys is fetched together, several parts at a time; then the keys are read again that
 * were not complete, because a row may be in one of several files. A key that is complete is in RocksDB's block cache.
 */
public final class ReadAhead {
  /** Levels of a database, and blocks of a row or a prefix, that are fetched ahead. The rest is whoever reads it's. */
  private static final int ROUNDS = 8;

  /** A prefix whose rows are in several blocks has so many bytes more fetched in each further round, twice as many. */
  private static final int AHEAD = 16 << 10;

  /** Tests change what keys there are, and let it fail. */
  static volatile UnaryOperator<List<AskedKey>> tampering = UnaryOperator.identity();

  private final LazyRocksDB database;
  private final LazyFiles files;

  /** Of a database, and of its files. */
  public ReadAhead(LazyRocksDB database, LazyFiles files) {
    this.database = database;
    this.files = files;
  }

  /** Whether anything of the files is missing. */
  public boolean isNeeded() {
    return !files.isWhole();
  }

  /** Counts the reads that had to wait. */
  public long waits() {
    return files.waits();
  }

  /** What reads of the current thread would ask for; see {@link LazyRocksDB#keysOf}. */
  public List<AskedKey> keysOf(BooleanSupplier reads, long bytes) {
    return tampering.apply(database.keysOf(reads, bytes));
  }

  /**
   * Fetches what keys need. It fails where a part cannot be fetched, and no reader has to know: each fetches what it
   * needs by itself.
   *
   * @param keys in any order, and some of them more than once
   * @param parallelism how many requests are under way at the same time
   * @param isCancelled asked again and again
   * @return what was done, as one window
   */
  public LookAhead fetch(Collection<AskedKey> keys, int parallelism, BooleanSupplier isCancelled) throws IOException {
    List<AskedKey> left = tampering.apply(new ArrayList<>(new TreeSet<>(keys)));
    int count = left.size();
    int present = 0;
    int fetched = 0;
    try (ReadOptions options = new ReadOptions()) {
      for (int round = 0; round < ROUNDS && !left.isEmpty(); round++) {
        Set<LazyFiles.Part> parts = new HashSet<>();
        left = incomplete(left, options, round, parts, isCancelled);
        present = round == 0 ? count - left.size() : present;
        if (parts.isEmpty() || isCancelled.getAsBoolean()) {
          break;
        }
        fetched += files.fetch(parts, parallelism, isCancelled);
      }
    }
    return new LookAhead(1, count, present, fetched);
  }

  /** The keys of which something is missing; adds to the parts what that is. */
  private List<AskedKey> incomplete(
      List<AskedKey> keys, ReadOptions options, int round, Set<LazyFiles.Part> parts, BooleanSupplier isCancelled) {
    List<AskedKey> left = new ArrayList<>();
    for (AskedKey key : keys) {
      if (isCancelled.getAsBoolean()) {
        break;
      }
      LazyFiles.Part part = database.missingFor(key, options);
      if (part != null) {
        left.add(key);
        long more = key.isPrefix() && round > 0 ? (long) AHEAD << round : 0;
        parts.add(new LazyFiles.Part(part.name(), part.from(), part.to() + more));
      }
    }
    return left;
  }
}
