package io.pyspark.statestore.rocks;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.BooleanSupplier;
import org.rocksdb.PerfContext;
import org.rocksdb.PerfLevel;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;

/**
 * An open database that can say what would be read of it, and of which other threads may read ahead.
 *
 * <p>It has the native handle of the database that it is made of, which goes on to own it.
 */
public class AskedRocksDB extends RocksDB {
  final RocksDB original;

  /** Reads of fetching threads hold it to read, so that the database is not closed under them. */
  private final ReadWriteLock closing = new ReentrantReadWriteLock();

  private boolean isClosed;
  private volatile boolean isClosing;

  /** How many threads do something now that may take long. */
  private final AtomicInteger uses = new AtomicInteger();

  /** Whose reads are only noted now; null mostly. */
  private volatile AskedKeys noting;

  /** Of a database that is closed with this one. */
  public AskedRocksDB(RocksDB original) {
    super(original.getNativeHandle());
    storeDefaultColumnFamilyHandle(original.getDefaultColumnFamily());
    this.original = original;
  }

  /**
   * Runs reads of the current thread that read nothing: each finds no row, and what it asks for is noted. So whoever
   * reads decides how a key is written, and nobody else has to know it.
   *
   * @param reads makes a read; false where there is none left
   * @param bytes of memory that the keys may take; when there are more, no further read is made
   */
  public final List<AskedKey> keysOf(BooleanSupplier reads, long bytes) {
    AskedKeys keys = new AskedKeys(Thread.currentThread(), bytes);
    noting = keys;
    try {
      while (!keys.isFull() && reads.getAsBoolean()) {
        // The next one.
      }
    } finally {
      noting = null;
    }
    return keys.found();
  }

  /** What notes the reads of the current thread, or null. */
  private AskedKeys noting() {
    AskedKeys keys = noting;
    return keys != null && keys.areOfCurrentThread() ? keys : null;
  }

  /** Notes a row that is asked for, where the current thread only notes what it asks for. */
  final boolean isNoted(byte[] key) {
    AskedKeys keys = noting();
    if (keys != null) {
      keys.add(AskedKey.row(key));
    }
    return keys != null;
  }

  /** An iterator that notes where it goes, where the current thread only notes what it asks for; null otherwise. */
  final RocksIterator notingIterator() {
    AskedKeys keys = noting();
    return keys == null ? null : keys.iterator(original);
  }

  /**
   * Reads what a key asks for, and has RocksDB keep the blocks in its cache. For any thread.
   *
   * @return false where the database is closed, and nothing was read
   * @throws RocksDBException if RocksDB cannot read it: whoever reads the key will be told
   */
  final boolean read(AskedKey key, ReadOptions options) throws RocksDBException {
    closing.readLock().lock();
    try {
      if (!isClosed) {
        key.read(original, options);
      }
      return !isClosed;
    } finally {
      closing.readLock().unlock();
    }
  }

  /**
   * Reads what keys ask for, one after the other. For threads that do nothing else: RocksDB is to count what they read.
   *
   * @return how many blocks were read that took long; less where the database is closed, or a key cannot be read
   */
  final int read(List<AskedKey> keys, BooleanSupplier isCancelled) {
    PerfContext reads = null;
    try (ReadOptions options = new ReadOptions()) {
      for (AskedKey key : keys) {
        closing.readLock().lock();
        try {
          if (isClosed || isCancelled.getAsBoolean()) {
            break;
          }
          if (reads == null) {
            original.setPerfLevel(PerfLevel.ENABLE_TIME_EXCEPT_FOR_MUTEX);
            reads = original.getPerfContext();
            reads.reset();
          }
          key.read(original, options);
        } finally {
          closing.readLock().unlock();
        }
      }
    } catch (RocksDBException e) {
      // Whoever reads the key is told.
    }
    return reads == null ? 0 : DiskReads.slow(reads.getBlockReadCount(), reads.getBlockReadTime());
  }

  /** What is done with an open database. */
  interface Use<T> {
    T with(RocksDB opened) throws RocksDBException;
  }

  /** Does something, for any thread, and has the database stay open meanwhile. Empty where it is closed. */
  final <T> Optional<T> whileOpen(Use<T> use) throws RocksDBException {
    closing.readLock().lock();
    try {
      uses.incrementAndGet();
      if (isClosed || isClosing) {
        return Optional.empty();
      }
      return Optional.ofNullable(use.with(original));
    } finally {
      uses.decrementAndGet();
      closing.readLock().unlock();
    }
  }

  /** Whether the database is being closed, or is. */
  final boolean isClosing() {
    return isClosing;
  }

  /** How many bytes RocksDB's cache of blocks has, also those of other databases that share it; 0 if not known. */
  final long cacheBytes() {
    return property("rocksdb.block-cache-capacity");
  }

  /** About how many rows there are; 0 if not known. Those that were written several times may count as often. */
  final long rows() {
    return property("rocksdb.estimate-num-keys");
  }

  private long property(String name) {
    closing.readLock().lock();
    try {
      return isClosed ? 0 : original.getLongProperty(name);
    } catch (RocksDBException e) {
      return 0;
    } finally {
      closing.readLock().unlock();
    }
  }

  @Override
  public byte[] get(ReadOptions options, byte[] key) throws RocksDBException {
    return isNoted(key) ? null : super.get(options, key);
  }

  @Override
  public byte[] get(byte[] key) throws RocksDBException {
    return isNoted(key) ? null : super.get(key);
  }

  /** Spark reads so where it looks for several values of a key. */
  @Override
  public List<byte[]> multiGetAsList(ReadOptions options, List<byte[]> keys) throws RocksDBException {
    if (noting() == null) {
      return super.multiGetAsList(options, keys);
    }
    List<byte[]> none = new ArrayList<>();
    for (byte[] key : keys) {
      isNoted(key);
      none.add(null);
    }
    return none;
  }

  @Override
  public boolean keyExists(byte[] key) {
    return !isNoted(key) && super.keyExists(key);
  }

  @Override
  public RocksIterator newIterator() {
    RocksIterator noted = notingIterator();
    return noted == null ? original.newIterator() : noted;
  }

  @Override
  public RocksIterator newIterator(ReadOptions options) {
    RocksIterator noted = notingIterator();
    return noted == null ? original.newIterator(options) : noted;
  }

  @Override
  public final void closeE() throws RocksDBException {
    if (owningHandle_.compareAndSet(true, false)) {
      endReads();
      original.closeE();
    }
  }

  @Override
  public final void close() {
    if (owningHandle_.compareAndSet(true, false)) {
      endReads();
      original.close();
    }
  }

  /** Waits for what other threads do, of which it gives up what takes long, and has nothing begin. */
  void endReads() {
    isClosing = true;
    if (uses.get() > 0) {
      original.cancelAllBackgroundWork(false);
    }
    closing.writeLock().lock();
    try {
      isClosed = true;
    } finally {
      closing.writeLock().unlock();
    }
  }
}
