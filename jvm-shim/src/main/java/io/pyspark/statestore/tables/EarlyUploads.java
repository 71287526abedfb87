package io.pyspark.statestore.tables;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.Pins;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.write.Commit;
import io.pyspark.statestore.write.Lane;
import io.pyspark.statestore.write.LocalSpace;
import io.pyspark.statestore.write.UploadWatch;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongConsumer;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Uploads the SSTs of a checkpoint's stores that RocksDB has made lately, before a snapshot names them: one thread of
 * the pool, in a lane for which no commit of Spark's waits, at a bounded rate. What fails is written with its snapshot.
 */
final class EarlyUploads {
  private static final Logger LOG = LoggerFactory.getLogger(EarlyUploads.class);

  /** Smaller files share a group up to so many bytes: where a group is a file, each costs a request. */
  private static final long GROUP = 16 << 20;

  /** Nothing is uploaded for so long after a failure. */
  private static final long REST_NANOS = 1_000_000_000;

  private final Path stateDirectory;
  private final Supplier<Options> options;
  private final Supplier<Lane> lane;
  private final Predicate<String> isServed;
  private final LocalSpace localSpace;
  private final Index index;
  private final Pins pins;
  private final Loads loads;
  private final LogMetrics metrics;
  private final LongConsumer written;
  private final Executor threads;
  private final AtomicBoolean isBusy = new AtomicBoolean();
  private final AtomicBoolean warned = new AtomicBoolean();
  private volatile long restUntilNanos = System.nanoTime();

  /**
   * @param lane to write in; null where there is none
   * @param isServed whether this process has committed to a store lately
   * @param written is told how many bytes were
   */
  EarlyUploads(
      Path stateDirectory,
      Supplier<Options> options,
      Supplier<Lane> lane,
      Predicate<String> isServed,
      LocalSpace localSpace,
      Index index,
      Pins pins,
      Loads loads,
      LogMetrics metrics,
      LongConsumer written,
      Executor threads) {
    this.stateDirectory = stateDirectory;
    this.options = options;
    this.lane = lane;
    this.isServed = isServed;
    this.localSpace = localSpace;
    this.index = index;
    this.pins = pins;
    this.loads = loads;
    this.metrics = metrics;
    this.written = written;
    this.threads = threads;
  }

  /** Has uploaded what is due, in another thread. */
  void runIfDue() {
    if (System.nanoTime() - restUntilNanos < 0
        || !EarlyFiles.isAnyDue(stateDirectory, isServed)
        || isBusy.getAndSet(true)) {
      return;
    }
    boolean started = false;
    try {
      threads.execute(this::run);
      started = true;
    } finally {
      if (!started) {
        isBusy.set(false);
      }
    }
  }

  private void run() {
    List<EarlyFile> files = new ArrayList<>();
    long began = System.nanoTime();
    try {
      EarlyFiles.takeDue(stateDirectory, isServed, GROUP, files);
      long bytes = upload(files);
      long perSecond = options.get().uploadMaxBytesPerSecond();
      restUntilNanos = began + (perSecond == 0 ? 0 : (long) (1e9 * bytes / perSecond));
    } catch (IOException | RuntimeException | Error e) {
      restUntilNanos = began + REST_NANOS;
      LOG.info("SSTs of {} could not be uploaded before their snapshot. They are written with it", stateDirectory, e);
    } finally {
      isBusy.set(false);
      end(files);
    }
  }

  /** A snapshot may wait for each of them, whatever becomes of the others. */
  private static void end(List<EarlyFile> files) {
    for (EarlyFile file : files) {
      try {
        file.wasRead();
        EarlyFiles.ended(file);
      } catch (RuntimeException | Error e) {
        LOG.info("{} was not let go after its upload", file.path(), e);
      }
    }
  }

  private long upload(List<EarlyFile> files) throws IOException {
    Lane own = lane.get();
    if (own == null) {
      if (!warned.getAndSet(true)) {
        LOG.warn(
            "upload=created has no effect for {}: maxOpenFiles is less than 3, and SSTs need a file that no commit"
                + " waits for. They are written with their snapshots. What to do: set maxOpenFiles to 3 or more, or"
                + " leave upload out",
            stateDirectory);
      }
      return 0;
    }
    pins.checkUnclaimed();
    Map<EarlyFile, Commit> commits = new LinkedHashMap<>();
    for (EarlyFile file : files) {
      try {
        Commit.Item item = new Commit.Item(file.path(), file.keep(localSpace));
        commits.put(file, new Commit(List.of(item), List.of(), -1, new Watch(file)));
      } catch (IOException e) {
        LOG.debug("{} is not uploaded before its snapshot", file.path(), e);
      }
    }
    own.writeTogether(new ArrayList<>(commits.values()));
    long bytes = 0;
    for (Map.Entry<EarlyFile, Commit> each : commits.entrySet()) {
      EarlyFile file = each.getKey();
      try {
        each.getValue().await();
        own.awaitReport(each.getValue());
        Segment segment = index.find(file.path());
        if (segment != null) {
          bytes += file.bytes();
          metrics.uploadedEarly(file.bytes());
          written.accept(file.bytes());
          file.wasRead();
          loads.mayGo(segment, file.identity());
          file.owner().written(file, segment.entry());
        }
      } catch (UploadWatch.ObsoleteUploadException e) {
        LOG.debug("{} is not needed any more", file.path());
      } catch (IOException e) {
        LOG.info("{} could not be uploaded before its snapshot. It is written with it", file.path(), e);
      }
    }
    return bytes;
  }

  /** Ends the upload of a file that nobody is going to need. */
  private record Watch(EarlyFile file) implements UploadWatch {
    @Override
    public void began(String path) {}

    @Override
    public String whyObsolete() {
      return file.isUnneeded ? "RocksDB has deleted the file, or the store is closed" : null;
    }

    @Override
    public void ask() {}

    @Override
    public void askNowAndThen() {}
  }
}
