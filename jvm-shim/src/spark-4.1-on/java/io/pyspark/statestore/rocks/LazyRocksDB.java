package io.pyspark.statestore.rocks;

import io.pyspark.statestore.Unchecked;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.rocksdb.FlushOptions;
import org.rocksdb.MutableColumnFamilyOptions;
import org.rocksdb.Options;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An open database of which some files have holes. What Spark reads of it is complete all the same, see {@link Holes}
 * and {@link LazyIterator}; a test compares what Spark calls with what is here. Once all files are whole, it is like
 * any other.
 *
 * <p>Until all files are whole nothing but the reads here, and a {@link Compactor}, reads them: RocksDB's own
 * compaction is off (it is opened so), and a flush reads no SST.
 */
public final class LazyRocksDB extends AskedRocksDB {
  private static final Logger LOG = LoggerFactory.getLogger(LazyRocksDB.class);

  private final LazyFiles files;
  private final Holes holes;
  private final Set<LazyIterator> iterators = ConcurrentHashMap.newKeySet();

  /** Whether RocksDB compacts by itself. */
  private boolean compacts;

  /** Null where nobody else does meanwhile. */
  private Compactor compactor;

  /**
   * Of a database that was opened with compaction off.
   *
   * @param original has just been opened, and is closed with this one
   */
  public LazyRocksDB(RocksDB original, LazyFiles files) {
    super(original);
    this.files = files;
    this.holes = new Holes(files);
  }

  /**
   * Has the database compacted although its files have holes.
   *
   * @param options that it was opened with
   * @param bytesPerSecond that compactions read; 0 without a bound
   */
  public void compactWithHoles(Options options, long bytesPerSecond) {
    compactor = new Compactor(this, files, options, bytesPerSecond);
  }

  /** Has another thread compact something, where there is something to compact. */
  public void compactIfDue() {
    if (compactor != null && !compacts && isOwningHandle()) {
      compactor.lookIfDue();
    }
  }

  /** Lets the database compact, once all of its files are whole. For the thread that uses it. */
  public void compactWhenWhole() {
    if (!compacts && files.isWhole() && isOwningHandle()) {
      compacts = true;
      try {
        original.setOptions(MutableColumnFamilyOptions.builder().setDisableAutoCompactions(false).build());
      } catch (RocksDBException e) {
        // It compacts from now on. What fails is to write that down, on a full disk, and nobody opens these files
        // again.
        LOG.info("RocksDB compacts {}, but could not write its options down", original.getName(), e);
      }
    }
  }

  @Override
  public byte[] get(ReadOptions options, byte[] key) throws RocksDBException {
    return files.isWhole() ? super.get(options, key) : holes.read(() -> super.get(options, key));
  }

  @Override
  public byte[] get(byte[] key) throws RocksDBException {
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
    if (files.isWhole()) {
      return super.newIterator();
    }
    try (ReadOptions options = new ReadOptions()) {
      return newIterator(options);
    }
  }

  @Override
  public RocksIterator newIterator(ReadOptions options) {
    if (files.isWhole()) {
      return super.newIterator(options);
    }
    RocksIterator noted = notingIterator();
    if (noted != null) {
      return noted;
    }
    LazyIterator made = new LazyIterator(original, holes, options, iterators::remove);
    iterators.add(made);
    return made;
  }

  @Override
  public void flush(FlushOptions options) throws RocksDBException {
    try {
      files.check();
      if (compactor != null && !compacts) {
        compactor.awaitLevel0();
      }
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
    super.flush(options);
  }

  @Override
  public void compactRange() throws RocksDBException {
    LazyFiles.Hold hold = null;
    try {
      if (files.isCached()) {
        hold = files.holdAll();
      } else {
        files.awaitWhole();
        compactWhenWhole();
      }
      super.compactRange();
    } catch (IOException e) {
      throw Unchecked.raise(e);
    } finally {
      if (hold != null) {
        hold.close();
      }
    }
  }

  @Override
  void endReads() {
    super.endReads();
    List.copyOf(iterators).forEach(LazyIterator::close);
  }
}
