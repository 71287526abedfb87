package io.pyspark.statestore.heap;

/** Who has spilled buckets, and hears what becomes of them. */
interface SpillOwner {
  /** Reads a bucket of its file, and checks it. */
  byte[] read(SpilledBucket bucket);

  /** A bucket is back, or another one is in its place. */
  void replaced(SpilledBucket bucket);
}
