package io.pyspark.statestore.clean;

import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.learn.IndexSource;
import io.pyspark.statestore.learn.Learning;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.read.SegmentReader;
import io.pyspark.statestore.write.Commits;
import io.pyspark.statestore.write.OpenFile;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/**
 * What removes garbage from one checkpoint: whoever cleans unlinks dead files and moves what lives out of files that
 * are mostly dead; an executor that is served moves what it is told to.
 */
public final class Maintenance {
  private final Rules rules;
  private final Commits commits;
  private final Garbage garbage;
  private final Relocator relocator;
  private final Cleaner cleaner;

  /**
   * @param forget removes a file that is gone from the index, and closes what is open of it
   */
  public Maintenance(
      Learning learning,
      IndexSource source,
      SegmentReader reader,
      Commits commits,
      LogMetrics metrics,
      Consumer<MergedFile> forget) {
    OpenFile.Factory files = commits.files();
    Storage storage = files.storage();
    Index index = files.index();
    this.rules = files.rules();
    this.commits = commits;
    garbage = new Garbage(index, rules, learning.pins(), commits::serves);
    relocator =
        new Relocator(
            garbage, source, storage, learning.markers(), metrics, reader, commits::newBuffer, commits::writeRelocated);
    SourcePins sourcePins = new SourcePins(storage, index, files.writer(), commits.tombstones(), learning.pins());
    cleaner =
        new Cleaner(
            storage,
            index,
            rules,
            metrics,
            files.writer().id(),
            commits.tombstones(),
            learning,
            sourcePins,
            garbage,
            relocator,
            new Consolidation(files, learning.pins()),
            commits::writeTombstones,
            forget);
  }

  public Garbage garbage() {
    return garbage;
  }

  public Cleaner cleaner() {
    return cleaner;
  }

  /**
   * Moves segments where an index service says what to move.
   *
   * @param moves asks the service
   * @param intervalMs between two questions
   * @param threads copy what is moved
   */
  public ServedRelocations relocations(
      ServedRelocations.Asks moves, String checkpoint, long intervalMs, Executor threads) {
    return new ServedRelocations(
        moves, checkpoint, commits.served(), commits.tombstones(), garbage, relocator, rules, intervalMs, threads);
  }
}
