package io.pyspark.statestore.reshape;

import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A value that goes from a column family to another one, in a store with row checksums. */
public final class MovedValue {
  private static final StructType NUMBER = new StructType().add("n", DataTypes.LongType);
  private static final String STORE = "spark.sql.streaming.stateStore.";

  private MovedValue() {}

  /**
   * Moves a value.
   *
   * @param state where the store is
   * @param isDamaged whether the value is another one than its checksum says
   * @return whether it is what Spark puts there itself
   */
  public static boolean isAsSparkWritesIt(String state, boolean isDamaged) throws Exception {
    SQLConf sql = new SQLConf();
    sql.setConfString(STORE + "rowChecksum.enabled", "true");
    sql.setConfString(STORE + "rowChecksum.readVerificationRatio", "0");
    sql.setConfString(STORE + "providerClass", RocksDBStateStoreProvider.class.getName());
    RocksDBStateStoreProvider provider =
        (RocksDBStateStoreProvider)
            StateStoreProvider.createAndInit(
                new StateStoreProviderId(new StateStoreId(state, 0, 0, "default"), UUID.randomUUID()),
                NUMBER,
                NUMBER,
                new NoPrefixKeyStateEncoderSpec(NUMBER),
                true,
                StateStoreConf.apply(sql),
                new Configuration(),
                false,
                Option.empty());
    try {
      StateStore store = provider.getStore(0, Option.empty(), false, false);
      try {
        for (String family : new String[] {"before", "after"}) {
          store.createColFamilyIfAbsent(family, NUMBER, NUMBER, new NoPrefixKeyStateEncoderSpec(NUMBER), false, false);
          store.put(row(1), row(2), family);
        }
        SortedRows rows = new SortedRows(provider, true);
        if (isDamaged) {
          rows.forEach("before", (key, bytes, at) -> damage(provider, at.key(), at.value()));
        }
        AtomicReference<byte[]> key = new AtomicReference<>();
        AtomicReference<byte[]> value = new AtomicReference<>();
        rows.forEach(
            "after",
            (decoded, bytes, at) -> {
              key.set(at.key());
              value.set(at.value());
            });
        AtomicReference<byte[]> moved = new AtomicReference<>();
        rows.forEach("before", (decoded, bytes, at) -> moved.set(rows.valueFor(key.get(), at)));
        return Arrays.equals(moved.get(), value.get());
      } finally {
        store.abort();
      }
    } finally {
      provider.close();
    }
  }

  private static void damage(RocksDBStateStoreProvider provider, byte[] key, byte[] value) {
    value[value.length - 1] ^= 1;
    provider.rocksDB().put(key, value, "before", true, false, true);
  }

  private static UnsafeRow row(long n) {
    return UnsafeProjection.create(NUMBER).apply(new GenericInternalRow(new Object[] {n})).copy();
  }
}
