package io.pyspark.statestore.fs;

import io.pyspark.statestore.files.BulkDeletion;
import io.pyspark.statestore.files.Threads;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Entries that a query has purged from one of its logs, and that wait until one request deletes many of them. Those
 * that still wait when the query ends are older than what it keeps: its next run finds them, as it lists what to purge.
 */
final class PurgedEntries {
  private static final Logger LOG = LoggerFactory.getLogger(PurgedEntries.class);

  /** So many wait at most; each is a file more than Spark would keep. */
  private static final int MOST = 20;

  private final OwnFileSystem fs;
  private final Path directory;
  private final Set<Path> waiting = new LinkedHashSet<>();
  private final Set<Path> beingDeleted = new HashSet<>();

  /** Null before the first entry. */
  private BulkDeletion deletion;

  PurgedEntries(OwnFileSystem fs, Path directory) {
    this.fs = fs;
    this.directory = directory;
  }

  /** Whether an entry counts as deleted, and may still be there. */
  synchronized boolean contains(Path entry) {
    return waiting.contains(entry) || beingDeleted.contains(entry);
  }

  /**
   * Has an entry deleted, with the page that it completes. Spark waits for the thread that purges when a query stops;
   * were the page deleted in another one, it could take entries of the next run, or of another query, at this path.
   *
   * @return false where one request deletes one file, so that waiting would save none
   */
  boolean add(Path entry) throws IOException {
    if (deletion().pageSize() == 1) {
      return false;
    }
    List<Path> page = pageWith(entry);
    if (page.isEmpty()) {
      return true;
    }
    try {
      delete(page);
    } finally {
      synchronized (this) {
        page.forEach(beingDeleted::remove);
      }
    }
    return true;
  }

  private synchronized BulkDeletion deletion() throws IOException {
    if (deletion == null) {
      deletion = BulkDeletion.of(fs.get(), directory);
    }
    return deletion;
  }

  /** Empty where the page is not full yet. */
  private synchronized List<Path> pageWith(Path entry) {
    waiting.add(entry);
    if (waiting.size() < Math.min(MOST, deletion.pageSize())) {
      return List.of();
    }
    List<Path> page = List.copyOf(waiting);
    waiting.clear();
    beingDeleted.addAll(page);
    return page;
  }

  private void delete(List<Path> page) throws IOException {
    Map<Path, Exception> failed = deletion().delete(page);
    if (failed.isEmpty()) {
      return;
    }
    Exception why = any(failed);
    // The query is being stopped, and the deletion of one entry would have said so, too.
    if (Threads.saysInterrupted(why) || Thread.currentThread().isInterrupted()) {
      Thread.currentThread().interrupt();
      InterruptedIOException interrupted = new InterruptedIOException("Interrupted while entries of a log were purged");
      interrupted.initCause(why);
      throw interrupted;
    }
    LOG.info("{} purged entries of a log stay until its query starts again", failed.size(), why);
  }

  private static Exception any(Map<Path, Exception> failed) {
    return failed.values().iterator().next();
  }
}
