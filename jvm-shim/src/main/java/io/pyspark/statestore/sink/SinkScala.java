package io.pyspark.statestore.sink;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.UncheckedIOException;
import scala.util.Properties;

/**
 * Refuses to work on file sinks in Spark 3.5 with Scala 2.13, for which no jar is built. Spark would call {@code
 * commitJob} with another class of sequences there: our class would not hear of the commit, and Spark would list staged
 * files.
 */
public final class SinkScala {
  private SinkScala() {}

  /** Checks the Scala that runs. */
  static void check() {
    check(Properties.versionNumberString());
  }

  /**
   * Checks a version of Scala.
   *
   * @throws UncheckedIOException PSS_SINK_COMPACTION_FAILED
   */
  public static void check(String found) {
    if (!ShimInfo.knowsSequencesOf(found)) {
      StateStoreFilesException why =
          new StateStoreFilesException(
              Id.PSS_SINK_COMPACTION_FAILED,
              "File sinks compact in Spark 3.5 with Scala 2.12, and this is Scala "
                  + found
                  + ". Nothing was written. Unset spark.sql.streaming.commitProtocolClass, or use Spark 4.0 or newer.");
      throw new UncheckedIOException(why.getMessage(), why);
    }
  }
}
