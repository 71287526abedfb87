package io.pyspark.statestore.format;

import java.util.List;

/**
 * What one flush made durable: some segments, and an index block that names them.
 *
 * @param trailerOffset where the group's trailer starts in the file
 * @param entries the facts of its index block
 * @param names the name table, for an index-only or a reference file; else empty
 */
public record Group(long trailerOffset, Trailer trailer, List<Entry> entries, List<String> names) {
  /** The offset of the first byte after the group. */
  public long end() {
    return trailerOffset + Trailer.SIZE;
  }
}
