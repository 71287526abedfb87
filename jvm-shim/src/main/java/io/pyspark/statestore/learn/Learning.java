package io.pyspark.statestore.learn;

import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.index.HybridClock;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.metrics.LogMetrics;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/**
 * How one log learns what others have written into its checkpoint's files.
 *
 * @param reader reads the indexes of files
 * @param markers of relocations
 * @param pins of forks, and of this checkpoint itself
 * @param refresher lists the files and has them read
 */
public record Learning(IndexReader reader, RelocationMarkers markers, Pins pins, Refresher refresher) {
  /**
   * @param forget removes a file that is gone from the index, and closes what is open of it
   */
  public static Learning of(
      Storage storage,
      Index index,
      Rules rules,
      HybridClock clock,
      LogMetrics metrics,
      WriterIdentity writer,
      Executor threads,
      Consumer<MergedFile> forget) {
    IndexReader reader = new IndexReader(storage, index, rules, clock);
    RelocationMarkers markers = new RelocationMarkers(storage, index, rules, writer, metrics, threads);
    Pins pins = new Pins(storage, rules);
    Refresher refresher =
        new Refresher(storage, index, rules, metrics, writer.id(), reader, markers, pins, threads, forget);
    return new Learning(reader, markers, pins, refresher);
  }
}
