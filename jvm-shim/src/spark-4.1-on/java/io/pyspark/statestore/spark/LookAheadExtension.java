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

  /** Null where no store of the session is ours, or has anything that a read would wait for. */
  private static Options optionsOf(SparkSession session) {
    String provider = session.conf().get("spark.sql.streaming.stateStore.providerClass", "");
    if (provider.equals(MergedRocksDBStateStoreProvider.class.getName())) {
      return ProviderConf.options(SessionInternals.hadoopConf(session));
    }
    boolean isHeap = provider.equals(MergedHDFSBackedStateStoreProvider.class.getName());
    Options options = isHeap ? ProviderConf.options(SessionInternals.hadoopConf(session)) : null;
    return options != null && options.heapSpill() ? options : null;
  }
}
