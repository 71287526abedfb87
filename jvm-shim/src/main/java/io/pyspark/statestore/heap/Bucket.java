package io.pyspark.statestore.heap;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * Functions on a bucket: a few rows in one byte array. The array never changes, since an update makes another one, so a
 * row that points into it never changes either.
 *
 * <p>Layout: row count (4 bytes, 4 of padding); a hash per row (8 bytes); per row the end of its record, counted from
 * the first record (4), and the length of its key (4, the highest bit set where a checksum follows the value); the
 * records, each a key, a value, and perhaps a checksum (4 bytes, 4 of padding).
 */
final class Bucket {
  private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final int HEADER = 8;
  private static final int PER_ROW = 16;
  private static final int HAS_CHECKSUM = 0x80000000;
  private static final int CHECKSUM_BYTES = 8;
  private static final int ARRAY_HEADER = 16;

  private Bucket() {}

  /** Bytes of heap of a bucket of some length. */
  static long heap(long length) {
    return length == 0 ? 0 : (length + ARRAY_HEADER + 7L) & -8L;
  }

  static int count(byte[] bucket) {
    return bucket == null ? 0 : (int) INT.get(bucket, 0);
  }

  static long hash(byte[] bucket, int row) {
    return (long) LONG.get(bucket, HEADER + 8 * row);
  }

  /** Where a row's record begins in the array. */
  static int keyStart(byte[] bucket, int row) {
    int count = count(bucket);
    return recordsStart(count) + (row == 0 ? 0 : end(bucket, count, row - 1));
  }

  static int keyLength(byte[] bucket, int row) {
    return keyLengthAndFlag(bucket, row) & ~HAS_CHECKSUM;
  }

  static boolean hasChecksum(byte[] bucket, int row) {
    return keyLengthAndFlag(bucket, row) < 0;
  }

  static int checksum(byte[] bucket, int row) {
    int count = count(bucket);
    return (int) INT.get(bucket, recordsStart(count) + end(bucket, count, row) - CHECKSUM_BYTES);
  }

  static int valueStart(byte[] bucket, int row) {
    return keyStart(bucket, row) + keyLength(bucket, row);
  }

  static int valueLength(byte[] bucket, int row) {
    int count = count(bucket);
    int end = recordsStart(count) + end(bucket, count, row) - (hasChecksum(bucket, row) ? CHECKSUM_BYTES : 0);
    return end - valueStart(bucket, row);
  }

  /** The row that has a key; -1 for none. */
  static int find(byte[] bucket, long hash, UnsafeRow key) {
    int count = count(bucket);
    for (int row = 0; row < count; row++) {
      if ((long) LONG.get(bucket, HEADER + 8 * row) == hash && hasKey(bucket, row, key)) {
        return row;
      }
    }
    return -1;
  }

  private static boolean hasKey(byte[] bucket, int row, UnsafeRow key) {
    int length = keyLength(bucket, row);
    if (length != key.getSizeInBytes()) {
      return false;
    }
    long start = Platform.BYTE_ARRAY_OFFSET + (long) keyStart(bucket, row);
    return ByteArrayMethods.arrayEquals(bucket, start, key.getBaseObject(), key.getBaseOffset(), length);
  }

  /**
   * Copies a bucket, with one more row or with another value for one row.
   *
   * @param bucket null for an empty one
   * @param row the row to replace; -1 adds one
   */
  static byte[] with(byte[] bucket, int row, long hash, UnsafeRow key, UnsafeRow value, boolean checked, int checksum) {
    int keyLength = key.getSizeInBytes();
    int valueLength = value.getSizeInBytes();
    int length = Math.addExact(Math.addExact(keyLength, valueLength), checked ? CHECKSUM_BYTES : 0);
    int count = count(bucket);
    boolean adds = row < 0;
    int newCount = adds ? count + 1 : count;
    int at = adds ? count : row;
    int before = at == 0 ? 0 : end(bucket, count, at - 1);
    int after = adds ? before : end(bucket, count, at);
    int oldRecords = count == 0 ? 0 : end(bucket, count, count - 1);
    int difference = length - (after - before);
    byte[] made = new byte[Math.addExact(recordsStart(newCount), Math.addExact(oldRecords, difference))];
    INT.set(made, 0, newCount);
    int records = recordsStart(newCount);
    if (count > 0) {
      System.arraycopy(bucket, HEADER, made, HEADER, 8 * count);
      System.arraycopy(bucket, HEADER + 8 * count, made, HEADER + 8 * newCount, 8 * count);
      System.arraycopy(bucket, recordsStart(count), made, records, before);
      System.arraycopy(bucket, recordsStart(count) + after, made, records + before + length, oldRecords - after);
    }
    LONG.set(made, HEADER + 8 * at, hash);
    setEnd(made, newCount, at, before + length);
    INT.set(made, HEADER + 8 * newCount + 8 * at + 4, checked ? keyLength | HAS_CHECKSUM : keyLength);
    if (difference != 0) {
      for (int later = at + 1; later < newCount; later++) {
        setEnd(made, newCount, later, end(made, newCount, later) + difference);
      }
    }
    long target = Platform.BYTE_ARRAY_OFFSET + (long) records + before;
    Platform.copyMemory(key.getBaseObject(), key.getBaseOffset(), made, target, keyLength);
    Platform.copyMemory(value.getBaseObject(), value.getBaseOffset(), made, target + keyLength, valueLength);
    if (checked) {
      INT.set(made, records + before + keyLength + valueLength, checksum);
    }
    return made;
  }

  /** Copies a bucket without one of its rows; null if none is left. */
  static byte[] without(byte[] bucket, int row) {
    int count = count(bucket) - 1;
    if (count == 0) {
      return null;
    }
    Builder rest = new Builder(count, records(bucket) - recordLength(bucket, row));
    for (int each = 0; each < count(bucket); each++) {
      if (each != row) {
        rest.add(bucket, each);
      }
    }
    return rest.build();
  }

  /** A bucket of the rows in whose hash a bit, counted from the highest, is set, or is not; null for none. */
  static byte[] select(byte[] bucket, int bit, boolean set) {
    int chosen = 0;
    int records = 0;
    int count = count(bucket);
    for (int row = 0; row < count; row++) {
      if (isSet(hash(bucket, row), bit) == set) {
        chosen++;
        records += recordLength(bucket, row);
      }
    }
    if (chosen == 0 || chosen == count) {
      return chosen == 0 ? null : bucket;
    }
    Builder half = new Builder(chosen, records);
    for (int row = 0; row < count; row++) {
      if (isSet(hash(bucket, row), bit) == set) {
        half.add(bucket, row);
      }
    }
    return half.build();
  }

  /** A bucket with the rows of both; each may be null. */
  static byte[] merge(byte[] left, byte[] right) {
    if (left == null || right == null) {
      return left == null ? right : left;
    }
    Builder both = new Builder(count(left) + count(right), records(left) + records(right));
    for (int row = 0; row < count(left); row++) {
      both.add(left, row);
    }
    for (int row = 0; row < count(right); row++) {
      both.add(right, row);
    }
    return both.build();
  }

  /** Whether all rows have the same hash, so that no bit of it can divide them. */
  static boolean isOneHash(byte[] bucket) {
    int count = count(bucket);
    for (int row = 1; row < count; row++) {
      if (hash(bucket, row) != hash(bucket, 0)) {
        return false;
      }
    }
    return true;
  }

  private static boolean isSet(long hash, int bit) {
    return (hash << bit) < 0;
  }

  private static int recordsStart(int count) {
    return HEADER + PER_ROW * count;
  }

  /** Bytes of all records. */
  private static int records(byte[] bucket) {
    return bucket.length - recordsStart(count(bucket));
  }

  private static int recordLength(byte[] bucket, int row) {
    int count = count(bucket);
    return end(bucket, count, row) - (row == 0 ? 0 : end(bucket, count, row - 1));
  }

  private static int end(byte[] bucket, int count, int row) {
    return (int) INT.get(bucket, HEADER + 8 * count + 8 * row);
  }

  private static void setEnd(byte[] bucket, int count, int row, int end) {
    INT.set(bucket, HEADER + 8 * count + 8 * row, end);
  }

  private static int keyLengthAndFlag(byte[] bucket, int row) {
    return (int) INT.get(bucket, HEADER + 8 * count(bucket) + 8 * row + 4);
  }

  /** Makes a bucket of other buckets' rows, exactly as large as they need: rows may be large. */
  private static final class Builder {
    private final int count;
    private final byte[] bytes;
    private int rows;
    private int records;

    Builder(int count, int records) {
      this.count = count;
      this.bytes = new byte[Math.addExact(recordsStart(count), records)];
      INT.set(bytes, 0, count);
    }

    void add(byte[] from, int row) {
      int length = recordLength(from, row);
      System.arraycopy(from, keyStart(from, row), bytes, recordsStart(count) + records, length);
      records += length;
      LONG.set(bytes, HEADER + 8 * rows, hash(from, row));
      setEnd(bytes, count, rows, records);
      INT.set(bytes, HEADER + 8 * count + 8 * rows + 4, keyLengthAndFlag(from, row));
      rows++;
    }

    byte[] build() {
      return bytes;
    }
  }
}
