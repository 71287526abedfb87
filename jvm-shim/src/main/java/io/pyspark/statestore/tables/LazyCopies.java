package io.pyspark.statestore.tables;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.Options.Restore;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.metrics.LogMetrics.Count;
import io.pyspark.statestore.read.Prefetcher;
import io.pyspark.statestore.read.SegmentReader;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Copies the ends of SSTs for loads that are lazy. What cannot be copied so is left to be copied whole, and that is
 * always right: a file that is small, that has another layout, or that could not be completed once before in this
 * process. Of such a file a load gets the error, where Spark knows what to do about it.
 */
final class LazyCopies implements Prefetcher.Lazily {
  private static final Logger LOG = LoggerFactory.getLogger(LazyCopies.class);
  private static final AtomicBoolean SAID_WHY_NOT = new AtomicBoolean();

  private final org.apache.hadoop.fs.Path stateDirectory;
  private final SegmentReader reader;
  private final Supplier<Options> options;
  private final Supplier<HostCache> cache;
  private final LogMetrics metrics;
  private final ExecutorService threads;
  private final Set<String> distrusted = ConcurrentHashMap.newKeySet();

  LazyCopies(
      org.apache.hadoop.fs.Path stateDirectory,
      SegmentReader reader,
      Supplier<Options> options,
      Supplier<HostCache> cache,
      LogMetrics metrics,
      ExecutorService threads) {
    this.stateDirectory = stateDirectory;
    this.reader = reader;
    this.options = options;
    this.cache = cache;
    this.metrics = metrics;
    this.threads = threads;
  }

  private boolean suits(Segment segment) {
    return LazyLoad.suits(segment) && !distrusted.contains(segment.path());
  }

  @Override
  public void expect(List<Segment> wanted) {
    LazyLoad load = LazyLoad.current();
    if (load == null) {
      return;
    }
    boolean usesHost = !load.files().isCached();
    List<Segment> lazily = wanted.stream().filter(s -> suits(s) && !(usesHost && cache.get().has(s))).toList();
    wanted.removeAll(lazily);
    load.expect(lazily, this::readEnd, threads);
  }

  private byte[] readEnd(Segment segment) throws IOException {
    return read(segment, LazyLoad.endOf(segment.length()));
  }

  private byte[] read(Segment segment, long from) throws IOException {
    byte[] bytes = new byte[Math.toIntExact(segment.length() - from)];
    reader.readAt(segment, from, bytes, 0, bytes.length);
    return bytes;
  }

  /**
   * Copies the end of an SST, for a lazy load.
   *
   * @return false where the file has to be copied whole; nothing is at the target then
   */
  boolean copy(Segment segment, Path local) throws IOException {
    LazyLoad load = LazyLoad.current();
    if (load == null) {
      sayWhyNot(segment);
      return false;
    }
    if (!suits(segment)) {
      return false;
    }
    byte[] end = end(load, segment);
    TableEnd.Answer answer = TableEnd.find(end, segment.length());
    while (!answer.isKnown()) {
      // Each answer is further to the front than the one before.
      end = read(segment, answer.from() - answer.from() % PartialFile.alignment());
      answer = TableEnd.find(end, segment.length());
    }
    if (answer.from() == TableEnd.UNKNOWN) {
      return false;
    }
    Arrival arrival = new Arrival(segment, load.files());
    PartialFile file = new PartialFile(local, segment.length(), arrival, load.files().cache());
    boolean done = false;
    try {
      file.keepFrom(answer.from());
      file.begin(end);
      file.need(answer.from(), segment.length());
      done = true;
    } finally {
      if (!done) {
        file.close();
        Files.deleteIfExists(local);
      }
    }
    metrics.fetched(segment, segment.length() - file.missing());
    if (file.missing() > 0 || load.files().isCached()) {
      metrics.leftOut(file.missing());
      arrival.isLoaded = true;
      load.files().loading(threads);
      load.files().add(file);
    }
    return true;
  }

  /**
   * An SST was written that a store of this process may have. Where its state is in the checkpoint, parts of its file
   * may go from now on.
   *
   * @param identity what tells its file from all others on the disk
   */
  void durable(Segment segment, Object identity) throws IOException {
    org.apache.hadoop.fs.Path store = storeOf(segment);
    if (LazyFiles.isCached(store)) {
      LazyFiles.durable(
          store,
          LogicalPaths.localName(segment.path()),
          identity,
          files -> {
            Arrival arrival = new Arrival(segment, files);
            arrival.isLoaded = true;
            files.loading(threads);
            return arrival;
          });
    }
  }

  /** Whether the store of an SST has its state in the checkpoint, so that the host keeps nothing for it. */
  boolean isCached(Segment segment) {
    return LazyFiles.isCached(storeOf(segment));
  }

  private org.apache.hadoop.fs.Path storeOf(Segment segment) {
    String store = LogicalPaths.storeOfImmutable(segment.path());
    return new org.apache.hadoop.fs.Path(stateDirectory, store == null ? "none" : store);
  }

  private byte[] end(LazyLoad load, Segment segment) throws IOException {
    try {
      byte[] fetched = load.take(segment, this::readEnd, threads);
      return fetched != null ? fetched : readEnd(segment);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while reading state/" + segment.path());
    }
  }

  private void sayWhyNot(Segment segment) {
    if (options.get().restore() != Restore.EAGER && LazyLoad.suits(segment) && !SAID_WHY_NOT.getAndSet(true)) {
      LOG.warn(
          "restore={} has no effect here: stores of queries are loaded lazily with the provider door, on Spark 4.1"
              + " and later. SSTs are copied whole, and results are the same. What to do: leave restore out",
          options.get().restore().name().toLowerCase());
    }
  }

  /** What arrives of one SST. */
  private final class Arrival implements PartialFile.Origin {
    private final LazyFiles files;

    /** Where it was last read, as it may have been relocated. */
    private volatile Segment segment;

    private volatile boolean isLoaded;

    Arrival(Segment segment, LazyFiles files) {
      this.segment = segment;
      this.files = files;
    }

    @Override
    public void read(long position, byte[] buffer, int length) throws IOException {
      try {
        segment = reader.readAt(segment, position, buffer, 0, length);
      } catch (StateStoreFilesException e) {
        distrusted.add(segment.path());
        throw e;
      }
    }

    @Override
    public void arrives() {
      files.arrived();
    }

    @Override
    public void arrived(int bytes, PartialFile.Why why) {
      if (isLoaded) {
        metrics.completed(
            bytes,
            switch (why) {
              case DEMANDED -> Count.DEMANDED_BYTES;
              case AHEAD -> Count.LOOK_AHEAD_BYTES;
              case BACKGROUND -> Count.HYDRATED_BYTES;
            });
      }
    }

    @Override
    public void check(Path file, int crc32c) throws IOException {
      try {
        reader.check(segment, crc32c);
      } catch (StateStoreFilesException e) {
        distrusted.add(segment.path());
        throw e;
      }
    }

    @Override
    public void decided(PartialFile file, IOException failure) {
      files.decided(file, failure);
      if (failure != null) {
        metrics.lost();
        LOG.info("{} cannot be completed, so its store fails until it is loaded anew", file.path(), failure);
      }
      if (failure == null && !files.isCached()) {
        keepOnHost(file);
      }
    }

    @Override
    public void undecided(PartialFile file) {
      files.undecided(file);
    }

    @Override
    public void postponed() {
      metrics.fetchFailed();
    }

    private void keepOnHost(PartialFile file) {
      try {
        // Spark may have put another file there.
        if (Files.exists(file.path()) && file.key().equals(PartialFiles.keyOf(file.path()))) {
          cache.get().fetched(segment, file.path());
        }
      } catch (IOException e) {
        LOG.debug("{} is gone", file.path(), e);
      }
    }
  }
}
