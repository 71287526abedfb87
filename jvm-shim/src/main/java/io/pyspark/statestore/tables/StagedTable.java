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

  /** Of a file of which parts may have gone: it must not be taken for whole, whatever becomes of its store. */
  private final PartialFiles.Named named;

  /** Null as long as parts may be missing. */
  private PartialFiles.Pin pin;

  private boolean isClosed;

  private StagedTable(Payload kept, Object identity, PartialFiles.Named named, PartialFiles.Pin pin) {
    this.kept = kept;
    this.identity = identity;
    this.named = named;
    this.pin = pin;
  }

  /**
   * Of a store's file that was uploaded, and of which parts may have gone.
   *
   * @param kept another name of it
   * @param identity what tells the store's own file from all others on its disk
   * @param named says that the name is there; closed with this
   */
  static StagedTable ofParts(Payload kept, Object identity, PartialFiles.Named named) {
    return new StagedTable(kept, identity, named, null);
  }

  /**
   * Of a store's file of which all is here.
   *
   * @param kept another name of it, or a copy
   * @param identity what tells the store's own file from all others on its disk
   * @param pin sees to it that nothing of it goes; closed with this
   */
  static StagedTable ofWhole(Payload kept, Object identity, PartialFiles.Pin pin) {
    return new StagedTable(kept, identity, null, pin);
  }

  Object identity() {
    return identity;
  }

  /** Has all of the file here, and checked, before it is written. From then on it stays. */
  void complete() throws IOException {
    if (!isComplete()) {
      PartialFiles.Pin made = PartialFiles.pin(kept.file());
      synchronized (this) {
        if (pin == null && !isClosed) {
          pin = made;
          return;
        }
      }
      made.close();
    }
  }

  private synchronized boolean isComplete() {
    return pin != null;
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
    if (!isComplete()) {
      throw new IOException("Only parts of " + kept.file() + " may be on the local disk");
    }
    kept.writeTo(out);
  }

  @Override
  public synchronized void close() {
    if (pin != null) {
      pin.close();
      pin = null;
    }
    isClosed = true;
    kept.close();
    if (named != null) {
      named.close();
    }
  }
}
