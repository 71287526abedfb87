package io.pyspark.statestore.heap;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;

/** The fields of a store's rows, the hash of a key, and a key's prefix. All maps of a provider share one. */
public class RowSchema {
  private final int keyFields;
  private final int valueFields;
  private final int prefixFields;

  /**
   * Each thread has one, since a projection reuses its result; to make one, Spark compiles code or finds it compiled.
   */
  private final ThreadLocal<UnsafeProjection> prefixProjection;

  /**
   * @param prefixFields how many of a key's first fields are its prefix; 0 if there are no prefix scans
   */
  public RowSchema(StructType keySchema, StructType valueSchema, int prefixFields) {
    this.keyFields = keySchema.fields().length;
    this.valueFields = valueSchema.fields().length;
    this.prefixFields = prefixFields;
    DataType[] types =
        Arrays.stream(keySchema.fields()).limit(prefixFields).map(StructField::dataType).toArray(DataType[]::new);
    this.prefixProjection = ThreadLocal.withInitial(() -> UnsafeProjection.create(types));
  }

  boolean hasPrefix() {
    return prefixFields > 0;
  }

  /** The hash of a key. The prefix's hash comes first, so that a trie keeps the rows of one prefix together. */
  long hash(UnsafeRow key) {
    return hasPrefix() ? prefixHash(prefixOf(key)) | key.hashCode() & 0xFFFFFFFFL : (long) key.hashCode() << 32;
  }

  /** The hash of a prefix: the highest 32 bits of the hash of each key that has it. */
  long prefixHash(UnsafeRow prefix) {
    return (long) prefix.hashCode() << 32;
  }

  /** The prefix of a key, valid until the same thread calls this again. */
  UnsafeRow prefixOf(UnsafeRow key) {
    return prefixProjection.get().apply(key);
  }

  UnsafeRow key(byte[] bucket, int row) {
    UnsafeRow key = new UnsafeRow(keyFields);
    pointTo(key, bucket, Bucket.keyStart(bucket, row), Bucket.keyLength(bucket, row));
    return key;
  }

  UnsafeRow value(byte[] bucket, int row) {
    UnsafeRow value = new UnsafeRow(valueFields);
    pointTo(value, bucket, Bucket.valueStart(bucket, row), Bucket.valueLength(bucket, row));
    return value;
  }

  private static void pointTo(UnsafeRow target, byte[] bucket, int start, int length) {
    target.pointTo(bucket, Platform.BYTE_ARRAY_OFFSET + (long) start, length);
  }
}
