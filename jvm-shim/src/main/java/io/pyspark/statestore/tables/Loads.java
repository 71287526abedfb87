package io.pyspark.statestore.tables;

import io.pyspark.statestore.StateFileNotFoundException;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.read.FileHandles;
import io.pyspark.statestore.read.Prefetcher;
import io.pyspark.statestore.read.SegmentInputStream;
import io.pyspark.statestore.read.SegmentReader;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutorService;
import org.apache.hadoop.fs.FSInputStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What this process reads out of the merged files of one checkpoint when a store is loaded: changelogs, deltas and zips
 * as streams, with what Spark wants after them fetched ahead, and SSTs onto the local disk.
 */
public final class Loads {
  private static final Logger LOG = LoggerFactory.getLogger(Loads.class);

  private final Rules rules;
  private final Index index;
  private final LogMetrics metrics;
  private final FileHandles handles;
  private final SegmentReader reader;
  private final LazyCopies lazyCopies;
  private final Prefetcher prefetcher;

  /**
   * @param finder finds a segment again, because its file is gone
   */
  public Loads(
      Storage storage,
      Rules rules,
      Index index,
      SegmentReader.Finder finder,
      LogMetrics metrics,
      ExecutorService threads) {
    this.rules = rules;
    this.index = index;
    this.metrics = metrics;
    handles = new FileHandles(storage, rules);
    reader = new SegmentReader(storage, handles, finder);
    lazyCopies = new LazyCopies(storage.stateDirectory(), reader, rules::options, this::cache, metrics, threads);
    prefetcher = new Prefetcher(index, segment -> cache().has(segment), handles, reader, lazyCopies, threads);
  }

  private HostCache cache() {
    return HostCache.of(rules.options());
  }

  public SegmentReader reader() {
    return reader;
  }

  /** Opens a segment, and fetches ahead what Spark will want after it. */
  public FSInputStream open(Segment segment) throws IOException {
    byte[] fetched = prefetcher.take(segment);
    if (fetched == null && segment.length() <= SegmentReader.WHOLE) {
      fetched = reader.read(segment);
      prefetcher.wasRead(segment, fetched);
    }
    if (fetched == null) {
      return new SegmentInputStream(reader, segment);
    }
    prefetcher.opened(segment, fetched);
    return new SegmentInputStream(segment, fetched);
  }

  /**
   * Copies a segment to the local disk, checked. An SST comes from the host's cache where that has it; of others a lazy
   * load gets the ends.
   */
  public void copyTo(Segment segment, Path local) throws IOException {
    // The file that is there may be an entry of the cache, too, so nothing is written into it.
    Files.deleteIfExists(local);
    LazyLoad load = LazyLoad.current();
    boolean usesHost = load == null || !load.files().isCached();
    if (usesHost && cache().linkTo(segment, local)) {
      metrics.cached(segment);
      return;
    }
    if (lazyCopies.copy(segment, local)) {
      return;
    }
    boolean whole = false;
    try (OutputStream out = Files.newOutputStream(local)) {
      copy(segment, out);
      whole = true;
    } finally {
      if (!whole) {
        Files.deleteIfExists(local);
      }
    }
    metrics.fetched(segment, segment.length());
    if (usesHost) {
      cache().fetched(segment, local);
    }
  }

  /**
   * An SST is durable. The host keeps it for a restart, or, where its store has its state in the checkpoint, no more of
   * it than there is room for.
   *
   * @param file a name of it on the local disk, or a copy
   * @param identity what tells the store's own file from all others on its disk
   */
  public void durable(Segment segment, Path file, Object identity) {
    if (lazyCopies.isCached(segment)) {
      mayGo(segment, identity);
    } else {
      cache().written(segment, file);
    }
  }

  /** An SST is durable that no snapshot names yet. Where there is no room, parts of its file may go. */
  void mayGo(Segment segment, Object identity) {
    try {
      lazyCopies.durable(segment, identity);
    } catch (IOException e) {
      LOG.info("All of state/{} stays on the local disk", segment.path(), e);
    }
  }

  /** Copies a whole segment, checked, out of its merged file. */
  public void copy(Segment segment, OutputStream out) throws IOException {
    byte[] fetched = prefetcher.take(segment);
    if (fetched != null) {
      out.write(fetched);
    } else {
      reader.copy(segment, out);
    }
  }

  /** The error for a logical file that no merged file has. */
  public StateFileNotFoundException missing(String path) {
    return reader.notFound(path, index.files());
  }

  /** Closes the files that nobody has read for a while. */
  public void closeIdle() {
    handles.closeIdle();
  }

  /** Drops what was fetched ahead and not asked for. */
  public void dropStale() {
    prefetcher.dropStale();
  }

  /** A merged file is gone. */
  public void close(String name) {
    handles.close(name);
  }

  public void closeAll() {
    handles.closeAll();
  }
}
