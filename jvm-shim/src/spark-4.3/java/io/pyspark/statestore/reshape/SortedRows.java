package io.pyspark.statestore.reshape;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ArrayIndexRange;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksum;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksumEncoder;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import scala.Option;
import scala.Some;
import scala.Tuple2;
import scala.Tuple3;

/**
 * The rows of a RocksDB store that is open, as they are in RocksDB. Spark decodes the keys, and nothing else is
 * decoded: Spark's iterator copies each value, its reader copies all once more, and its writer encodes again what was
 * encoded.
 */
final class SortedRows {
  private final RocksDB rocks;
  private final boolean usesFamilies;
  private final Map<String, Tuple3<RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Object>> encoders;
  private final Map<String, byte[]> prefixes = new HashMap<>();

  /** Checks each value that it is given; nothing where values have no checksums. */
  private final Option<KeyValueIntegrityVerifier> verifier;

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
    encoders =
        (Map<String, Tuple3<RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Object>>)
            new Internals(provider)
                .get(RocksDBStateStoreProvider.class.getName().replace('.', '$') + "$$keyValueEncoderMap");
    verifier =
        KeyValueIntegrityVerifier.create(provider.stateStoreId().toString(), rocks.conf().rowChecksumEnabled(), 1);
  }

  /** RocksDB itself. */
  org.rocksdb.RocksDB db() throws ReflectiveOperationException {
    return (org.rocksdb.RocksDB) new Internals(rocks).call("db");
  }

  /** The bytes before each key of a column family. */
  byte[] prefix(String family) throws ReflectiveOperationException {
    byte[] known = prefixes.get(family);
    if (known == null) {
      known =
          usesFamilies
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
    try (ReadOptions once = new ReadOptions().setFillCache(false);
        RocksIterator at = db().newIterator(once)) {
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

  /**
   * Returns the value of a row as it has to be beside another key. A row checksum covers the key with the bytes that
   * say the column family, and a family has other ones in each store: it depends on who has made the families, and in
   * which order. A value that changes its checksum is checked before, as Spark does when it reads it; otherwise damage
   * would get a checksum that is right.
   *
   * @param at the row
   * @param key under which the value will be
   */
  byte[] valueFor(byte[] key, RocksIterator at) {
    byte[] value = at.value();
    if (verifier.isEmpty()) {
      return value;
    }
    byte[] before = at.key();
    if (Arrays.equals(before, key)) {
      return value;
    }
    Tuple2<ArrayIndexRange<Object>, Object> row = KeyValueChecksumEncoder.decodeOneValueRowIndexWithChecksum(value);
    int from = row._1().fromIndex();
    if (row._1().untilIndex() != value.length) {
      throw new IllegalStateException("A key has several values in a column family whose keys have one");
    }
    verifier.get().verify(new ArrayIndexRange<>(before, 0, before.length), Some.apply(row._1()), (Integer) row._2());
    byte[] bare = Arrays.copyOfRange(value, from, value.length);
    return KeyValueChecksumEncoder.encodeValueRowWithChecksum(bare, KeyValueChecksum.create(key, Some.apply(bare)));
  }

  private static boolean startsWith(byte[] key, byte[] prefix) {
    return key.length >= prefix.length && Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length);
  }
}
