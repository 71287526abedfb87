package io.pyspark.statestore.rocks;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.Consumer;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.Snapshot;

/**
 * An iterator over a database of which some files have holes.
 *
 * <p>Why a scan never ends early: after each move the iterator below is asked for its status, whether it stands on a
 * key or not. RocksDB's iterators stop being valid at a block that they cannot read, as they do at the end; the status
 * tells these apart. At a hole the hole is filled and the move is made again, from the key on which it began, by a new
 * iterator of the same snapshot: the old one has read ahead, and may keep zeros. If that key is not found where it was,
 * that is an error.
 */
final class LazyIterator extends RocksIterator {
  private final RocksDB original;
  private final Holes holes;
  private final Consumer<LazyIterator> onClose;
  private final ReadOptions options;
  private RocksIterator below;

  /** Null where the caller's options have one. */
  private Snapshot snapshot;

  /** On which it stands; null where that was not asked yet. */
  private byte[] key;

  private Holes.Attempt attempt;
  private boolean isOpen = true;

  /** A move of an iterator. */
  private interface Move {
    void make(RocksIterator iterator);
  }

  /**
   * @param original the database below
   * @param holes fills those that it finds
   * @param given options of the caller
   * @param onClose is told that this iterator is closed
   */
  LazyIterator(RocksDB original, Holes holes, ReadOptions given, Consumer<LazyIterator> onClose) {
    super(original, 0);
    // All that is public of an iterator is replaced below, so nothing uses that handle.
    disOwnNativeHandle();
    this.original = original;
    this.holes = holes;
    this.onClose = onClose;
    options = new ReadOptions(given);
    if (options.snapshot() == null) {
      takeSnapshot();
    }
    below = original.newIterator(options);
    attempt = holes.new Attempt(true);
  }

  private void takeSnapshot() {
    snapshot = original.getSnapshot();
    options.setSnapshot(snapshot);
  }

  private void move(byte[] from, Move move) {
    attempt.begins();
    move.make(below);
    while (true) {
      try {
        below.status();
        key = null;
        attempt.isOver();
        return;
      } catch (RocksDBException e) {
        fill(e);
      }
      attempt.begins();
      below.close();
      below = original.newIterator(options);
      if (from == null || isOn(from)) {
        move.make(below);
      }
    }
  }

  private void fill(RocksDBException e) {
    try {
      attempt.failed(e);
    } catch (RocksDBException real) {
      throw new IllegalStateException(real.getMessage(), real);
    }
  }

  /** Goes to the key on which a move begins; false where a hole is in the way. */
  private boolean isOn(byte[] from) {
    below.seek(from);
    try {
      below.status();
    } catch (RocksDBException e) {
      return false;
    }
    if (!below.isValid() || !Arrays.equals(below.key(), from)) {
      throw new IllegalStateException("RocksDB no longer finds the key on which its iterator was");
    }
    return true;
  }

  @Override
  public boolean isOwningHandle() {
    return isOpen;
  }

  @Override
  public boolean isValid() {
    return below.isValid();
  }

  @Override
  public void seekToFirst() {
    move(null, RocksIterator::seekToFirst);
  }

  @Override
  public void seekToLast() {
    move(null, RocksIterator::seekToLast);
  }

  @Override
  public void seek(byte[] target) {
    move(null, iterator -> iterator.seek(target));
  }

  @Override
  public void seekForPrev(byte[] target) {
    move(null, iterator -> iterator.seekForPrev(target));
  }

  @Override
  public void seek(ByteBuffer target) {
    seek(bytes(target));
  }

  @Override
  public void seekForPrev(ByteBuffer target) {
    seekForPrev(bytes(target));
  }

  private static byte[] bytes(ByteBuffer from) {
    byte[] bytes = new byte[from.remaining()];
    from.get(bytes);
    return bytes;
  }

  @Override
  public void next() {
    move(below.isValid() ? key() : null, RocksIterator::next);
  }

  @Override
  public void prev() {
    move(below.isValid() ? key() : null, RocksIterator::prev);
  }

  @Override
  public byte[] key() {
    if (key == null) {
      key = below.key();
    }
    // The caller may change what it gets.
    return key.clone();
  }

  @Override
  public int key(ByteBuffer target) {
    return below.key(target);
  }

  @Override
  public int key(byte[] target) {
    return below.key(target);
  }

  @Override
  public int key(byte[] target, int offset, int length) {
    return below.key(target, offset, length);
  }

  @Override
  public byte[] value() {
    return below.value();
  }

  @Override
  public int value(ByteBuffer target) {
    return below.value(target);
  }

  @Override
  public int value(byte[] target) {
    return below.value(target);
  }

  @Override
  public int value(byte[] target, int offset, int length) {
    return below.value(target, offset, length);
  }

  @Override
  public void status() throws RocksDBException {
    below.status();
  }

  /** Shows what is there now. */
  @Override
  public void refresh() {
    below.close();
    release();
    takeSnapshot();
    reopen();
  }

  @Override
  public void refresh(Snapshot of) {
    below.close();
    release();
    options.setSnapshot(of);
    reopen();
  }

  private void reopen() {
    below = original.newIterator(options);
    key = null;
    attempt.isOver();
    attempt = holes.new Attempt(true);
  }

  private void release() {
    if (snapshot != null && original.isOwningHandle()) {
      original.releaseSnapshot(snapshot);
    }
    snapshot = null;
  }

  @Override
  public void close() {
    if (isOpen) {
      isOpen = false;
      attempt.isOver();
      below.close();
      release();
      options.close();
      onClose.accept(this);
    }
  }
}
