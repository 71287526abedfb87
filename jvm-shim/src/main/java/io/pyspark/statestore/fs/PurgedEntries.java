package io.pyspark.statestore.fs;

import io.pyspark.statestore.files.BulkDeletion;
import io.pyspark.statestore.files.Threads;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Entries that a query has purged from one of its logs, and that wait until one request deletes many of them. Those
 * that still wait when the query ends are older than what it keeps: its next run finds them, as it lists what to purge.
 */
final class PurgedEntries {
  private static final Logger LOG = LoggerFactory.getLogger(PurgedEntries.class);
  private static final ExecutorService THREAD = Executors.newCachedThreadPool(Threads.daemons("merged-log-purge"));

  /** So many wait at most; each is a file more than Spark would keep. */
  private static final int MOST = 20;

  private final BulkDeletion deletion;
  private final int pageSize;
  private final Set<Path> waiting = new LinkedHashSet<>();
  private final Set<Path> beingDeleted = new HashSet<>();

  private PurgedEntries(BulkDeletion deletion) {
    this.deletion = deletion;
    this.pageSize = Math.min(MOST, deletion.pageSize());
  }

  /** Null where one request deletes one file, so that waiting would save none. */
  static PurgedEntries of(BulkDeletion deletion) {
    return deletion.pageSize() > 1 ? new PurgedEntries(deletion) : null;
  }

  /** Whether an entry counts as deleted, and may still be there. */
  synchronized boolean contains(Path entry) {
    return waiting.contains(entry) || beingDeleted.contains(entry);
  }

  /** Has an entry deleted, soon and in another thread. */
  synchronized void add(Path entry) {
    waiting.add(entry);
    if (waiting.size() >= pageSize) {
      List<Path> page = List.copyOf(waiting);
      waiting.clear();
      beingDeleted.addAll(page);
      THREAD.execute(() -> delete(page));
    }
  }

  private void delete(List<Path> page) {
    Map<Path, Exception> failed = deletion.delete(page);
    if (!failed.isEmpty()) {
      LOG.info("{} purged entries of a log stay until its query starts again", failed.size(), any(failed));
    }
    synchronized (this) {
      page.forEach(beingDeleted::remove);
    }
  }

  private static Exception any(Map<Path, Exception> failed) {
    return failed.values().iterator().next();
  }
}
