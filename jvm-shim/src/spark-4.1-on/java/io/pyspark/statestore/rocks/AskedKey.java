package io.pyspark.statestore.rocks;

import java.util.Arrays;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;

/**
 * What somebody is about to read: the row of a key, or the rows whose keys begin with it.
 *
 * @param bytes as RocksDB has them
 * @param isPrefix whether the keys of several rows begin so
 */
public record AskedKey(byte[] bytes, boolean isPrefix) implements Comparable<AskedKey> {
  /** Of more rows whoever reads them fetches the rest: one after the other, with more and more at a time. */
  private static final int MOST_ROWS = 1000;

  /** Nothing of a value is wanted but that RocksDB has its block. */
  private static final byte[] NOTHING = new byte[0];

  static AskedKey row(byte[] key) {
    return new AskedKey(key, false);
  }

  static AskedKey rowsThatBeginWith(byte[] prefix) {
    return new AskedKey(prefix, true);
  }

  /** About as many bytes as it takes on the heap, in the lists and sets that it is in. */
  public long memory() {
    return memoryOf(bytes.length);
  }

  /** The same of one of this length. */
  public static long memoryOf(int length) {
    return 100 + length;
  }

  /** Reads it, and fails at the first block that RocksDB cannot read. */
  void read(RocksDB database, ReadOptions options) throws RocksDBException {
    if (!isPrefix) {
      database.get(options, bytes, NOTHING);
      return;
    }
    try (RocksIterator rows = database.newIterator(options)) {
      rows.seek(bytes);
      for (int row = 0; row < MOST_ROWS && rows.isValid() && isPrefixOf(rows.key()); row++) {
        rows.next();
      }
      rows.status();
    }
  }

  private boolean isPrefixOf(byte[] key) {
    return key.length >= bytes.length && Arrays.equals(key, 0, bytes.length, bytes, 0, bytes.length);
  }

  /** In the order that RocksDB has keys in, which is the order in which their rows are in files. */
  @Override
  public int compareTo(AskedKey other) {
    int order = Arrays.compareUnsigned(bytes, other.bytes);
    return order != 0 ? order : Boolean.compare(isPrefix, other.isPrefix);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof AskedKey key && isPrefix == key.isPrefix && Arrays.equals(bytes, key.bytes);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes);
  }
}
