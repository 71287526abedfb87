package io.pyspark.statestore.learn;

import io.pyspark.statestore.index.Index;
import java.io.IOException;
import java.util.stream.Stream;

/**
 * The files as the source of the index, for a log that works by itself, and for the log behind an index service.
 *
 * <p>Behind a service all processes of the running query report what they write. So the tasks of the query that run in
 * this process need no refresh, beyond the one with which each run begins: between two runs a checkpoint may be
 * deleted, or put back from a copy.
 */
public final class FilesSource implements IndexSource {
  /** The age of a view that maintenance may work with. */
  private static final long MAINTENANCE_VIEW_MS = 10_000;

  private final Refresher refresher;
  private final Index index;
  private final Service service;
  private volatile boolean everybodyReports;

  /** Asks whether there is an index service for a run of the query. */
  public interface Service {
    boolean serves(IndexTransport transport, FreshnessKey.QueryRun run) throws IOException;
  }

  public FilesSource(Refresher refresher, Index index, Service service) {
    this.refresher = refresher;
    this.index = index;
    this.service = service;
  }

  /** From now on all processes of the running query report to this one. */
  public void everybodyReports() {
    everybodyReports = true;
  }

  @Override
  public boolean beginRun(IndexTransport transport, FreshnessKey.QueryRun run) throws IOException {
    if (transport != null && service.serves(transport, run)) {
      return false;
    }
    refresher.refreshFor(run);
    return true;
  }

  @Override
  public void refreshFor(String path, FreshnessKey... keys) throws IOException {
    FreshnessKey[] open =
        everybodyReports ? Stream.of(keys).filter(key -> !key.isOfQuery()).toArray(FreshnessKey[]::new) : keys;
    if (open.length > 0) {
      refresher.refreshFor(open);
    }
  }

  @Override
  public void refresh(String path) throws IOException {
    // Asked for rarely, where somebody else may have taken over what this process thinks its own.
    refresher.refresh();
  }

  @Override
  public void refreshFromFiles(String path) throws IOException {
    refresher.refresh();
  }

  @Override
  public void refreshForMaintenance() throws IOException {
    if (!everybodyReports) {
      refresher.refreshIfOlderThan(MAINTENANCE_VIEW_MS);
    }
  }

  @Override
  public boolean refreshForRelocation() throws IOException {
    if (!everybodyReports) {
      refresher.refresh();
    }
    return !everybodyReports;
  }

  @Override
  public long liveBytes() {
    return index.liveBytes();
  }
}
