package io.pyspark.statestore.reshape;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import scala.Tuple3;

/**
 * The rows of a RocksDB store that is open, as they are in RocksDB. Spark decodes the keys, and nothing else is decoded:
 * Spark's iterator copies each value, its reader copies all once more, and its writer encodes again what was encoded.
 */
final class SortedRows {
  private final RocksDB rocks;
  private final boolean usesFamilies;
  private final Map<String, Tuple3<RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Object>> encoders;
  private final Map<String, byte[]> prefixes = new HashMap<>();

  /** Does something with a row. */
  interface Visitor {
    /**
     * @param key as Spark decodes it
     * @param bytes of the key, without those that say the column family
     * @param at the row, whose value may be asked for
     */
    void visit(UnsafeRow key, byte[] bytes, RocksIterator at) throws RocksDBException;
  }

  /**
   * Makes the rows of a store that has a version loaded, and knows its column families.
   *
   * @param usesFamilies whether Spark puts bytes before each key that say the column family
   */
  @SuppressWarnings("unchecked")
  SortedRows(RocksDBStateStoreProvider provider, boolean usesFamilies) throws ReflectiveOperationException {
    this.rocks = provider.rocksDB();
    this.usesFamilies = usesFamilies;
    encoders = (Map<String, Tuple3<RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Object>>) new Internals(provider)
        .get(RocksDBStateStoreProvider.class.getName().replace('.', '$') + "$$keyValueEncoderMap");
  }

  /** RocksDB itself. */
  org.rocksdb.RocksDB db() throws ReflectiveOperationException {
    return (org.rocksdb.RocksDB) new Internals(rocks).call("db");
  }

  /** The bytes before each key of a column family. */
  byte[] prefix(String family) throws ReflectiveOperationException {
    byte[] known = prefixes.get(family);
    if (known == null) {
      known = usesFamilies
          ? (byte[]) new Internals(rocks).call("encodeStateRowWithPrefix", new byte[0], family)
          : new byte[0];
      prefixes.put(family, known);
    }
    return known;
  }

  /** Visits the rows of a column family, in the order of their keys. */
  void forEach(String family, Visitor visitor) throws ReflectiveOperationException, RocksDBException {
    byte[] prefix = prefix(family);
    RocksDBKeyStateEncoder keys = encoders.get(family)._1();
    try (ReadOptions once = new ReadOptions().setFillCache(false); RocksIterator at = db().newIterator(once)) {
      for (at.seek(prefix); at.isValid(); at.next()) {
        byte[] found = at.key();
        if (!startsWith(found, prefix)) {
          break;
        }
        byte[] key = prefix.length == 0 ? found : Arrays.copyOfRange(found, prefix.length, found.length);
        visitor.visit(keys.decodeKey(key), key, at);
      }
      at.status();
    }
  }

  private static boolean startsWith(byte[] key, byte[] prefix) {
    return key.length >= prefix.length && Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length);
  }
}
