package io.pyspark.statestore.heap;

/** Who has spilled buckets, and hears what becomes of them. */
interface SpillOwner {
  /** Reads a bucket of its file, and checks it. */
  byte[] read(SpilledBucket bucket);

  /** A bucket is in its place again, in memory. */
  void isBack(SpilledBucket bucket);

  /** Another bucket is in its place. */
  void isReplaced(SpilledBucket bucket);
}
