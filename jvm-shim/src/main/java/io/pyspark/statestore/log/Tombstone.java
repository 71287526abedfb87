package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Entry;

/**
 * The deletion of what was seen of a path (rule 4): kills its entries up to and including this key.
 *
 * @param path relative to {@code state/}
 * @param stamp of the newest entry that it kills
 * @param writer of that entry
 */
record Tombstone(String path, long stamp, long writer) {
  static Tombstone of(Segment seen) {
    return new Tombstone(seen.path(), seen.entry().stamp(), seen.entry().writer());
  }

  Entry toEntry() {
    return Entry.tombstone(path, stamp, writer);
  }

  boolean kills(Segment segment) {
    return segment.compareKeyTo(stamp, writer) <= 0;
  }

  boolean covers(Tombstone other) {
    return Entry.compareKeys(stamp, writer, other.stamp, other.writer) >= 0;
  }
}
