package io.pyspark.statestore.rocks;

import io.pyspark.statestore.Unchecked;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.BooleanSupplier;
import org.rocksdb.FlushOptions;
import org.rocksdb.MutableColumnFamilyOptions;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;

/**
 * An open database of which some files have holes. What Spark reads of it is complete all the same, see {@link Holes}
 * and {@link LazyIterator}; a test compares what Spark calls with what is here. Once all files are whole, it is like
 * any other.
 *
 * <p>It has the native handle of the database that it is made of, which goes on to own it. Until all files are whole
 * nothing but the reads here reads them: compaction is off (it is opened so), and a flush reads no SST.
 */
public final class LazyRocksDB extends RocksDB {
  private final RocksDB original;
  private final LazyFiles files;
  private final Holes holes;
  private final Set<LazyIterator> iterators = ConcurrentHashMap.newKeySet();
  private boolean compacts;

  /** Reads of fetching threads hold it to read, so that the database is not closed under them. */
  private final ReadWriteLock closing = new ReentrantReadWriteLock();

  private boolean isClosed;

  /** Whose reads are only noted now; null mostly. */
  private volatile AskedKeys noting;

  /**
   * Of a database that was opened with compaction off.
   *
   * @param original has just been opened, and is closed with this one
   */
  public LazyRocksDB(RocksDB original, LazyFiles files) {
    super(original.getNativeHandle());
    storeDefaultColumnFamilyHandle(original.getDefaultColumnFamily());
    this.original = original;
    this.files = files;
    this.holes = new Holes(files);
  }

  /** Lets the database compact, once all of its files are whole. For the thread that uses it. */
  public void compactWhenWhole() {
    if (!compacts && files.isWhole() && isOwningHandle()) {
      compacts = true;
      try {
        original.setOptions(MutableColumnFamilyOptions.builder().setDisableAutoCompactions(false).build());
      } catch (RocksDBException e) {
        throw new IllegalStateException("RocksDB does not take its option to compact back", e);
      }
    }
  }

  /**
   * Runs reads of the current thread that read nothing: each finds no row, and what it asks for is noted. So whoever
   * reads decides how a key is written, and nobody else has to know it.
   *
   * @param reads makes a read; false where there is none left
   * @param bytes of memory that the keys may take; when there are more, no further read is made
   */
  public List<AskedKey> keysOf(BooleanSupplier reads, long bytes) {
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
  private boolean isNoted(byte[] key) {
    AskedKeys keys = noting();
    if (keys != null) {
      keys.add(AskedKey.row(key));
    }
    return keys != null;
  }

  /**
   * Reads what a key asks for, as far as that is there, and has RocksDB keep the blocks in its cache. For any thread.
   *
   * @return the part of a file that is missing; null where none is, where the read failed, and where the database is
   *     closed: whoever reads the key will be told
   */
  LazyFiles.Part missingFor(AskedKey key, ReadOptions options) {
    closing.readLock().lock();
    try {
      if (!isClosed) {
        key.read(original, options);
      }
      return null;
    } catch (RocksDBException e) {
      return Holes.partOf(e);
    } finally {
      closing.readLock().unlock();
    }
  }

  @Override
  public byte[] get(ReadOptions options, byte[] key) throws RocksDBException {
    if (isNoted(key)) {
      return null;
    }
    return files.isWhole() ? super.get(options, key) : holes.read(() -> super.get(options, key));
  }

  @Override
  public byte[] get(byte[] key) throws RocksDBException {
    if (isNoted(key)) {
      return null;
    }
    return files.isWhole() ? super.get(key) : holes.read(() -> super.get(key));
  }

  /** Of several keys RocksDB does not say which it could not read: they are null, as those that are not there. */
  @Override
  public List<byte[]> multiGetAsList(ReadOptions options, List<byte[]> keys) throws RocksDBException {
    if (files.isWhole()) {
      return super.multiGetAsList(options, keys);
    }
    List<byte[]> values = new ArrayList<>(super.multiGetAsList(options, keys));
    for (int i = 0; i < values.size(); i++) {
      if (values.get(i) == null) {
        values.set(i, get(options, keys.get(i)));
      }
    }
    return values;
  }

  @Override
  public boolean keyExists(byte[] key) {
    if (files.isWhole()) {
      return super.keyExists(key);
    }
    try {
      return get(key) != null;
    } catch (RocksDBException e) {
      throw new IllegalStateException(e.getMessage(), e);
    }
  }

  @Override
  public RocksIterator newIterator() {
    AskedKeys noted = noting();
    if (noted != null) {
      return noted.iterator(original);
    }
    if (files.isWhole()) {
      return original.newIterator();
    }
    try (ReadOptions options = new ReadOptions()) {
      return newIterator(options);
    }
  }

  @Override
  public RocksIterator newIterator(ReadOptions options) {
    AskedKeys noted = noting();
    if (noted != null) {
      return noted.iterator(original);
    }
    if (files.isWhole()) {
      return original.newIterator(options);
    }
    LazyIterator made = new LazyIterator(original, holes, options, iterators::remove);
    iterators.add(made);
    return made;
  }

  @Override
  public void flush(FlushOptions options) throws RocksDBException {
    try {
      files.check();
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
    super.flush(options);
  }

  @Override
  public void compactRange() throws RocksDBException {
    try {
      files.awaitWhole();
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
    compactWhenWhole();
    super.compactRange();
  }

  @Override
  public void closeE() throws RocksDBException {
    if (owningHandle_.compareAndSet(true, false)) {
      endReads();
      original.closeE();
    }
  }

  @Override
  public void close() {
    if (owningHandle_.compareAndSet(true, false)) {
      endReads();
      original.close();
    }
  }

  private void endReads() {
    closing.writeLock().lock();
    try {
      isClosed = true;
    } finally {
      closing.writeLock().unlock();
    }
    List.copyOf(iterators).forEach(LazyIterator::close);
  }
}
