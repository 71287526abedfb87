package io.pyspark.statestore.reshape;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Into which new partition a row belongs, by the part of its key that says so.
 *
 * <p>Each row is checked to be where Spark would look for it. A row elsewhere would be read by no new partition that it
 * belongs into, and be lost.
 */
final class Places {
  private final StoreRewrite store;
  private final UnsafeProjection places;
  private final GenericInternalRow keyOnly;
  private final int at;

  Places(StoreRewrite store) {
    this.store = store;
    places = store.places();
    at = store.old().schema().fieldIndex(OldStore.PARTITION_KEY);
    keyOnly = new GenericInternalRow(at + 1);
  }

  /**
   * Finds the new partition of a row, as Spark's reader gives it.
   *
   * @param from the old partition that it is in
   */
  int of(InternalRow row, int from) {
    UnsafeRow place = places.apply(row);
    if (place.getInt(0) != from) {
      throw new IllegalStateException(
          "A row of partition "
              + from
              + " of store "
              + store.name()
              + " belongs into partition "
              + place.getInt(0)
              + " of "
              + store.partitionsBefore()
              + ", so the query has put it there by another rule than is known");
    }
    return place.getInt(1);
  }

  /** As {@link #of}, by the part of a row's key that says it. */
  int ofKey(UnsafeRow partitionKey, int from) {
    keyOnly.update(at, partitionKey);
    return of(keyOnly, from);
  }
}
