package io.pyspark.statestore.format;

import java.util.List;

/**
 * What one flush made durable.
 *
 * @param trailerOffset where the group's trailer starts in the file
 * @param trailer of the group
 * @param entries of its index block
 * @param names of other merged files that the entries of an index-only or a reference file refer to
 */
public record Group(long trailerOffset, Trailer trailer, List<Entry> entries, List<String> names) {
  /** The first byte after the group. */
  public long end() {
    return trailerOffset + Trailer.SIZE;
  }
}
