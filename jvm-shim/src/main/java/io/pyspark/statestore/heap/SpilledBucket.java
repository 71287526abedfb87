package io.pyspark.statestore.heap;

/**
 * Stands for a {@link Bucket} that is in a {@link SpillFile}. It never changes, and any number of nodes may have it;
 * the file stays as long as one of them does.
 */
final class SpilledBucket {
  /** Bytes of this object, on a 64-bit JVM with compressed pointers. */
  static final int BYTES = 40;

  private final SpillFile file;
  private final int offset;
  private final int length;
  private final int crc32c;
  private final int rows;
  private final long firstHash;

  SpilledBucket(SpillFile file, int offset, byte[] bucket, int crc32c) {
    this.file = file;
    this.offset = offset;
    this.crc32c = crc32c;
    length = bucket.length;
    rows = Bucket.count(bucket);
    firstHash = Bucket.hash(bucket, 0);
  }

  SpillFile file() {
    return file;
  }

  int offset() {
    return offset;
  }

  int length() {
    return length;
  }

  int crc32c() {
    return crc32c;
  }

  int rows() {
    return rows;
  }

  /** The hash of its first row. */
  long firstHash() {
    return firstHash;
  }

  /** The bucket. Reads it of the file, and checks it. */
  byte[] read() {
    return file.owner().read(this);
  }

  /** A read has put the bucket in its place. */
  void isBack() {
    file.owner().isBack(this);
  }

  /** Another bucket was put in its place. */
  void isReplaced() {
    file.owner().isReplaced(this);
  }

  /** Bytes of heap that it takes less than its bucket. */
  long saved() {
    return Bucket.heap(length) - BYTES;
  }
}
