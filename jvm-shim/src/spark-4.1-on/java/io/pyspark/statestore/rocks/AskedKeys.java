package io.pyspark.statestore.rocks;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;
import org.rocksdb.Snapshot;

/** Notes what one thread asks for; see {@link LazyRocksDB#keysOf}. */
final class AskedKeys {
  private final Thread thread;
  private final List<AskedKey> found = new ArrayList<>();
  private long bytesLeft;

  /** Of a thread, as long as they take no more memory. */
  AskedKeys(Thread thread, long bytes) {
    this.thread = thread;
    bytesLeft = bytes;
  }

  boolean areOfCurrentThread() {
    return Thread.currentThread() == thread;
  }

  void add(AskedKey key) {
    found.add(key);
    bytesLeft -= key.memory();
  }

  boolean isFull() {
    return bytesLeft <= 0;
  }

  List<AskedKey> found() {
    return found;
  }

  /** An iterator that finds nothing. */
  RocksIterator iterator(RocksDB database) {
    return new NotingIterator(database, this);
  }

  /**
   * Where Spark goes, all that begins so is what it asks for. It never stands on a row. Spark keeps its iterators until
   * the task ends, so a closed one keeps nothing.
   */
  private static final class NotingIterator extends RocksIterator {
    private AskedKeys keys;

    NotingIterator(RocksDB database, AskedKeys keys) {
      super(database, 0);
      this.keys = keys;
      // All that is public of an iterator and goes anywhere is replaced below, so nothing uses that handle.
      disOwnNativeHandle();
    }

    @Override
    public boolean isValid() {
      return false;
    }

    @Override
    public void seek(byte[] target) {
      if (keys != null) {
        keys.add(AskedKey.rowsThatBeginWith(target.clone()));
      }
    }

    @Override
    public void seek(ByteBuffer target) {
      byte[] bytes = new byte[target.remaining()];
      target.get(bytes);
      seek(bytes);
    }

    /** A scan of everything, or of what is before something, is nobody's look ahead. */
    @Override
    public void seekToFirst() {}

    @Override
    public void seekToLast() {}

    @Override
    public void seekForPrev(byte[] target) {}

    @Override
    public void seekForPrev(ByteBuffer target) {}

    @Override
    public void next() {}

    @Override
    public void prev() {}

    @Override
    public void status() {}

    @Override
    public void refresh() {}

    @Override
    public void refresh(Snapshot snapshot) {}

    @Override
    public void close() {
      keys = null;
    }
  }
}
