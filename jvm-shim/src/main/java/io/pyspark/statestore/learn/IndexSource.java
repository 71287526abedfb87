package io.pyspark.statestore.learn;

import java.io.IOException;

/**
 * Where a log learns what other processes have written: in the files ({@link FilesSource}), or from the index service
 * in the driver.
 *
 * <p>A path stands for its partition. A source may answer for more than that.
 */
public interface IndexSource {
  /**
   * Begins a run of the query. Between two runs a checkpoint may be deleted, or put back from a copy.
   *
   * @param transport the way to the index service; null where there is none
   * @return false where the run needs another source
   */
  boolean beginRun(IndexTransport transport, FreshnessKey.QueryRun run) throws IOException;

  /**
   * Makes what is known of a path as new as the first call with each of these keys for any path.
   *
   * @param keys equal for all questions that may share an answer
   */
  void refreshFor(String path, FreshnessKey... keys) throws IOException;

  /** Makes what is known of a path as new as this call, as far as commits of the running query go. */
  void refresh(String path) throws IOException;

  /** As {@link #refresh}, and reads the files for it: whoever asks has found that one is missing. */
  void refreshFromFiles(String path) throws IOException;

  /** Makes all that is known new enough for maintenance, which may work with an older view: it only deletes less. */
  void refreshForMaintenance() throws IOException;

  /**
   * Makes all that is known as new as this call, for a relocation that has made its marker.
   *
   * @return whether every file that the index knows existed when this was called. Where it is not known, a relocation
   *     asks before it copies: others may have unlinked a file and then dropped a tombstone of what it held, and an
   *     open handle still reads it. While a file exists they have not, and they will see the marker before they do
   */
  boolean refreshForRelocation() throws IOException;

  /** Bytes of all live segments of the checkpoint. */
  long liveBytes();
}
