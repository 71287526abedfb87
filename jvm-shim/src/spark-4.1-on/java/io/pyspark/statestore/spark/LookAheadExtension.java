package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.Options.Restore;
import io.pyspark.statestore.ahead.LookAheadRule;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;

/** Has a session's plans looked through by {@link LookAheadRule}, where its stores may be opened with holes. */
final class LookAheadExtension {
  private LookAheadExtension() {}

  static void inject(SparkSessionExtensions extensions) {
    extensions.injectColumnar(
        new AbstractFunction1<SparkSession, org.apache.spark.sql.execution.ColumnarRule>() {
          @Override
          public org.apache.spark.sql.execution.ColumnarRule apply(SparkSession session) {
            return new LookAheadRule(() -> optionsOf(session));
          }
        });
  }

  /** Null where no store of the session has holes. Called for each batch, and mostly nobody has set anything. */
  private static Options optionsOf(SparkSession session) {
    String key = Options.PREFIX + "restore";
    if (session.conf().getOption(key).isEmpty() && session.sparkContext().hadoopConfiguration().get(key) == null) {
      return null;
    }
    Options options = ProviderConf.options(SessionInternals.hadoopConf(session));
    String provider = session.conf().get("spark.sql.streaming.stateStore.providerClass", "");
    boolean hasHoles =
        options.restore() != Restore.EAGER && provider.equals(MergedRocksDBStateStoreProvider.class.getName());
    return hasHoles ? options : null;
  }
}
