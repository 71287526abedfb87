package io.pyspark.statestore.heap;

import io.pyspark.statestore.write.UploadWatch;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.SparkUnsupportedOperationException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.StateStoreRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreRowWithChecksum;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowWrapper;
import org.apache.spark.util.KnownSizeEstimation;
import scala.Option;
import scala.collection.AbstractIterator;

/**
 * One version of a heap store, in place of Spark's hash map. {@link #putAll} of an earlier version shares that
 * version's rows instead of copying them.
 *
 * <p>As in stock Spark, one task writes a version, and nobody writes it once it is committed; any thread may read it
 * then. A row that the map has returned never changes. An iterator shows what was there when it was made, whatever is
 * written while it runs.
 */
public final class HeapStateStoreMap implements HDFSBackedStateStoreMap, KnownSizeEstimation {
  private static final long FIXED_BYTES = 128;

  final RowSchema schema;
  private final KeyValueIntegrityVerifier verifier;
  final RowTrie rows;
  private final HeapAhead ahead;

  /**
   * @param verifier checks rows that are read against their checksums; none if rows have no checksums
   * @param spill of the store, which moves rows to the local disk; null if all are to stay in memory
   */
  public HeapStateStoreMap(RowSchema schema, Option<KeyValueIntegrityVerifier> verifier, HeapSpill spill) {
    this.schema = schema;
    this.rows = new RowTrie(spill == null ? null : bytes -> spill.grown(rows(), bytes));
    this.ahead = spill == null ? null : spill.ahead();
    if (spill != null) {
      spill.made(rows);
    }
    this.verifier = verifier.isDefined() ? verifier.get() : null;
  }

  private RowTrie rows() {
    return rows;
  }

  /** Says which versions there are of a store whose rows may be on the local disk, the oldest first. */
  public static void keepOnly(HeapSpill spill, List<HeapStateStoreMap> versions) {
    spill.keepOnly(versions.stream().map(each -> each.rows).toList());
  }

  @Override
  public int size() {
    return rows.size();
  }

  /** Bytes of heap that this version would need alone, if nothing of it was spilled. */
  @Override
  public long estimatedSize() {
    return FIXED_BYTES + rows.weight().bytes;
  }

  /**
   * Bytes of heap that several versions need together; what they share counts once.
   *
   * @param versions in the order in which they were made
   */
  public static long estimatedSize(List<HeapStateStoreMap> versions) {
    long sum = 0;
    HeapStateStoreMap before = null;
    for (HeapStateStoreMap each : versions) {
      boolean shares = before != null && each.rows.weight().isCopyOf(before.rows.weight());
      sum += shares ? FIXED_BYTES + each.rows.weight().ownBytes : each.estimatedSize();
      before = each;
    }
    return sum;
  }

  @Override
  public UnsafeRow get(UnsafeRow key) {
    long hash = schema.hash(key);
    if (ahead != null && ahead.isNoted(rows, hash, 64)) {
      return null;
    }
    byte[] bucket = rows.bucket(hash);
    int row = Bucket.find(bucket, hash, key);
    return row < 0 ? null : verifiedValue(key, bucket, row);
  }

  @Override
  public UnsafeRowWrapper put(UnsafeRow key, UnsafeRowWrapper value) {
    long hash = schema.hash(key);
    byte[] before = rows.bucket(hash);
    int row = Bucket.find(before, hash, key);
    if (value instanceof StateStoreRowWithChecksum checked) {
      rows.put(hash, key, value.unsafeRow(), true, checked.checksum());
    } else {
      rows.put(hash, key, value.unsafeRow(), false, 0);
    }
    return row < 0 ? null : wrapped(before, row);
  }

  @Override
  public void putAll(HDFSBackedStateStoreMap other) {
    if (other instanceof HeapStateStoreMap base && rows.size() == 0 && base.schema == schema) {
      rows.branch(base.rows);
      return;
    }
    scala.collection.Iterator<Map.Entry<UnsafeRow, UnsafeRowWrapper>> entries = other.entryIterator();
    while (entries.hasNext()) {
      Map.Entry<UnsafeRow, UnsafeRowWrapper> entry = entries.next();
      put(entry.getKey(), entry.getValue());
    }
  }

  @Override
  public UnsafeRowWrapper remove(UnsafeRow key) {
    long hash = schema.hash(key);
    byte[] bucket = rows.bucket(hash);
    int row = Bucket.find(bucket, hash, key);
    if (row < 0) {
      return null;
    }
    rows.remove(hash, row);
    return wrapped(bucket, row);
  }

  @Override
  public scala.collection.Iterator<UnsafeRowPair> iterator() {
    return pairs(new BucketIterator(rows.freeze()), null);
  }

  /** All rows, for a snapshot. If nobody needs that snapshot any more, the iterator ends with an error. */
  @Override
  public scala.collection.Iterator<Map.Entry<UnsafeRow, UnsafeRowWrapper>> entryIterator() {
    UploadWatch watch = UploadWatch.current();
    return new Rows<>(new BucketIterator(rows.freeze())) {
      @Override
      void check() {
        UploadWatch.check(watch);
      }

      @Override
      Map.Entry<UnsafeRow, UnsafeRowWrapper> at(byte[] bucket, int row) {
        return new SimpleImmutableEntry<>(schema.key(bucket, row), wrapped(bucket, row));
      }
    };
  }

  @Override
  public scala.collection.Iterator<UnsafeRowPair> prefixScan(UnsafeRow prefixKey) {
    if (!schema.hasPrefix()) {
      throw SparkUnsupportedOperationException.apply();
    }
    long hash = schema.prefixHash(prefixKey);
    if (ahead != null && ahead.isNoted(rows, hash, 32)) {
      return scala.collection.Iterator$.MODULE$.empty();
    }
    // The caller's row may change before the scan ends.
    UnsafeRow prefix = prefixKey.copy();
    return pairs(BucketIterator.beginningWith(rows.root(), hash, 32), prefix);
  }

  private scala.collection.Iterator<UnsafeRowPair> pairs(Iterator<byte[]> buckets, UnsafeRow prefix) {
    UnsafeRowPair pair = new UnsafeRowPair(null, null);
    long prefixHash = prefix == null ? 0 : schema.prefixHash(prefix);
    return new Rows<>(buckets) {
      @Override
      boolean isWanted(byte[] bucket, int row) {
        return prefix == null
            || Bucket.hash(bucket, row) >> 32 == prefixHash >> 32
                && schema.prefixOf(schema.key(bucket, row)).equals(prefix);
      }

      @Override
      UnsafeRowPair at(byte[] bucket, int row) {
        UnsafeRow key = schema.key(bucket, row);
        return pair.withRows(key, verifiedValue(key, bucket, row));
      }
    };
  }

  private UnsafeRow verifiedValue(UnsafeRow key, byte[] bucket, int row) {
    if (verifier != null) {
      verifier.verify(key, wrapped(bucket, row));
    }
    return schema.value(bucket, row);
  }

  private UnsafeRowWrapper wrapped(byte[] bucket, int row) {
    UnsafeRow value = schema.value(bucket, row);
    return Bucket.hasChecksum(bucket, row)
        ? new StateStoreRowWithChecksum(value, Bucket.checksum(bucket, row))
        : new StateStoreRow(value);
  }

  /** Iterates over the rows of buckets. */
  private abstract static class Rows<T> extends AbstractIterator<T> {
    private final Iterator<byte[]> buckets;
    private byte[] bucket;
    private int row;
    private int count;

    Rows(Iterator<byte[]> buckets) {
      this.buckets = buckets;
    }

    abstract T at(byte[] bucket, int row);

    boolean isWanted(byte[] in, int at) {
      return true;
    }

    /** Called before each bucket, and before the end. */
    void check() {}

    @Override
    public boolean hasNext() {
      while (true) {
        while (row < count) {
          if (isWanted(bucket, row)) {
            return true;
          }
          row++;
        }
        check();
        if (!buckets.hasNext()) {
          return false;
        }
        bucket = buckets.next();
        count = Bucket.count(bucket);
        row = 0;
      }
    }

    @Override
    public T next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      return at(bucket, row++);
    }
  }
}
