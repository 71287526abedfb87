package io.pyspark.statestore.spark;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.ahead.LookAheadRule;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;

/** Has a session's plans looked through by {@link LookAheadRule}, where its stores can be read ahead. */
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

  /** Null where no store of the session is ours. */
  private static Options optionsOf(SparkSession session) {
    String provider = session.conf().get("spark.sql.streaming.stateStore.providerClass", "");
    boolean isOurs = provider.equals(MergedRocksDBStateStoreProvider.class.getName());
    return isOurs ? ProviderConf.options(SessionInternals.hadoopConf(session)) : null;
  }
}
