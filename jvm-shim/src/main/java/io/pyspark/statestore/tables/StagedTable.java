package io.pyspark.statestore.tables;

import io.pyspark.statestore.write.Payload;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Path;

/**
 * An SST on its way into a snapshot. It may be one that was uploaded as it was made, and of which parts have gone
 * since. Mostly the snapshot relies on what was uploaded. Where it cannot, all of the file is fetched first: no hole is
 * ever written.
 */
final class StagedTable implements Payload {
  private final Payload kept;
  private final Object identity;

  /** Null where all of the file is here. */
  private final PartialFile parts;

  private boolean isClosed;

  /**
   * Of a store's file.
   *
   * @param kept another name of it, or a copy
   * @param identity what tells the store's own file from all others on its disk
   * @param parts what is here of it; null where that is all
   */
  StagedTable(Payload kept, Object identity, PartialFile parts) {
    this.kept = kept;
    this.identity = identity;
    this.parts = parts;
    if (parts != null) {
      parts.linked(1);
    }
  }

  Object identity() {
    return identity;
  }

  /** Has all of the file here, and checked, before it is written. */
  void complete() throws IOException {
    if (parts != null) {
      parts.awaitWhole();
    }
  }

  @Override
  public long length() {
    return kept.length();
  }

  @Override
  public Path file() {
    return kept.file();
  }

  @Override
  public void writeTo(OutputStream out) throws IOException {
    if (parts != null && !parts.isWhole()) {
      throw new IOException("Only parts of " + parts.path() + " are on the local disk");
    }
    kept.writeTo(out);
  }

  @Override
  public synchronized void close() {
    if (!isClosed && parts != null) {
      parts.linked(-1);
    }
    isClosed = true;
    kept.close();
  }
}
