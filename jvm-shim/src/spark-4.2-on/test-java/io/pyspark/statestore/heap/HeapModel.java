package io.pyspark.statestore.heap;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksum;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.StateStoreRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreRowWithChecksum;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowWrapper;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.SizeEstimator;
import scala.Option;
import scala.Some;

/** Compares the maps of a heap store with plain hash maps that are copied whole for each version. */
public final class HeapModel {
  static final StructType KEYS = new StructType().add("group", DataTypes.IntegerType).add("name", DataTypes.StringType);
  static final StructType VALUES = new StructType().add("payload", DataTypes.BinaryType);

  private static final DataType[] KEY_TYPES = {DataTypes.IntegerType, DataTypes.StringType};
  private static final DataType[] GROUP_TYPE = {DataTypes.IntegerType};
  private static final DataType[] VALUE_TYPE = {DataTypes.BinaryType};

  private static final ThreadLocal<UnsafeProjection> KEY_PROJECTION = projection(KEY_TYPES);
  private static final ThreadLocal<UnsafeProjection> GROUP_PROJECTION = projection(GROUP_TYPE);
  private static final ThreadLocal<UnsafeProjection> VALUE_PROJECTION = projection(VALUE_TYPE);

  private final boolean hasPrefix;
  private final boolean hasChecksums;
  private final HeapSpill spill;
  private final RowSchema schema;
  private final List<Version> versions = new ArrayList<>();
  private final List<Held> held = new ArrayList<>();

  /**
   * Begins with one empty version.
   *
   * @param hashBits how many bits of a hash are used: few make many collisions
   * @param directory for rows that are spilled; null if all stay in memory
   */
  public HeapModel(boolean hasPrefix, boolean hasChecksums, int hashBits, String directory) {
    this.hasPrefix = hasPrefix;
    this.hasChecksums = hasChecksums;
    this.spill = directory == null ? null : HeapSpill.unwatched(Path.of(directory));
    this.schema =
        new RowSchema(KEYS, VALUES, hasPrefix ? 1 : 0) {
          private final long kept = hashBits == 32 ? -1L : ~(-1L >>> hashBits);

          @Override
          long hash(UnsafeRow key) {
            return super.hash(key) & (hasPrefix ? kept | kept >>> 32 : kept);
          }

          @Override
          long prefixHash(UnsafeRow prefix) {
            return super.prefixHash(prefix) & kept;
          }
        };
    versions.add(new Version(newMap(), new HashMap<>()));
  }

  private static ThreadLocal<UnsafeProjection> projection(DataType[] types) {
    return ThreadLocal.withInitial(() -> UnsafeProjection.create(types));
  }

  private HeapStateStoreMap newMap() {
    return new HeapStateStoreMap(schema, KeyValueIntegrityVerifier.create("model", hasChecksums, 1), spill);
  }

  /** Spills so much of the newest version; the first call passes what was used lately. */
  public long spill(int percent) {
    return spill.spill(spill.heapBytes() * percent / 100 + 1);
  }

  /** Has buckets be as they are for a moment while they are spilled or come back: some of their slots in each way. */
  public void mix(int number, int seed) {
    mix(version(number).map.rows.root(), new Random(seed));
  }

  private static void mix(Node node, Random random) {
    for (int slot = 0; slot < Node.SLOTS; slot++) {
      Object content = node.slots[slot];
      if (content instanceof Node child) {
        mix(child, random);
      } else if (content instanceof SpilledBucket spilled && random.nextBoolean()) {
        node.replace(slot, spilled, spilled.read());
      }
    }
  }

  /** Writes what is left of files anew of which versions have little. */
  public void tidy() {
    spill.tidy(Long.MAX_VALUE);
  }

  /** Does a small part of that. */
  public void tidyABit() {
    spill.tidy(0);
  }

  /** The store says that it has this version, and no other. */
  public void keepOnly(int number) {
    spill.keepOnly(List.of(version(number).map.rows));
  }

  /** Bytes of heap, as they are told to who watches memory. */
  public long heapBytes() {
    return spill.heapBytes();
  }

  /** How large files of spilled rows get in this process; returns how large they got before. */
  public static int fileBytes(int bytes) {
    int before = SpillFile.fullBytes;
    SpillFile.fullBytes = bytes;
    return before;
  }

  /** Bytes in files, those of them that versions have, and reads so far. */
  public long[] spilled() {
    return new long[] {spill.fileBytes(), spill.spilledBytes(), spill.reads()};
  }

  /** Copies a version, and returns the number of the copy. */
  public int branch(int from) {
    Version base = version(from);
    HeapStateStoreMap map = newMap();
    map.putAll(base.map);
    versions.add(new Version(map, new HashMap<>(base.expected)));
    return versions.size() - 1;
  }

  public void drop(int number) {
    if (versions.stream().filter(v -> v != null).count() > 1) {
      version(number);
      versions.set(number % versions.size(), null);
    }
  }

  public void put(int number, Integer group, String name, int length, int seed) {
    Version version = version(number);
    UnsafeRow key = key(group, name);
    UnsafeRow value = value(length, seed);
    UnsafeRowWrapper before = version.map.put(key, wrapped(key, value));
    same("what put returns", version.expected.put(key, value), before == null ? null : before.unsafeRow());
  }

  public void remove(int number, Integer group, String name) {
    Version version = version(number);
    UnsafeRow key = key(group, name);
    UnsafeRowWrapper before = version.map.remove(key);
    same("what remove returns", version.expected.remove(key), before == null ? null : before.unsafeRow());
  }

  public void putMany(int number, Integer group, int first, int count, int length) {
    for (int each = first; each < first + count; each++) {
      put(number, group, "name" + each, length, each);
    }
  }

  public void removeMany(int number, Integer group, int first, int count) {
    for (int each = first; each < first + count; each++) {
      remove(number, group, "name" + each);
    }
  }

  public void get(int number, Integer group, String name) {
    Version version = version(number);
    UnsafeRow key = key(group, name);
    same("what get returns", version.expected.get(key), version.map.get(key));
  }

  public void scan(int number, Integer group) {
    Version version = version(number);
    same("a prefix scan", version.expectedOf(group), collect(version.map.prefixScan(group(group)), -1));
  }

  public void iterate(int number) {
    version(number).check();
  }

  /** Goes through all rows, and through nothing else. */
  public int rows(int number) {
    return collect(version(number).map.iterator(), -1).size();
  }

  /** Begins to iterate; {@link #checkAll} reads and checks the rest. */
  public void hold(int number, Integer group, int rows) {
    Version version = version(number);
    boolean scans = hasPrefix && rows % 2 == 0;
    scala.collection.Iterator<UnsafeRowPair> iterator =
        scans ? version.map.prefixScan(group(group)) : version.map.iterator();
    Map<UnsafeRow, UnsafeRow> expected = scans ? version.expectedOf(group) : new HashMap<>(version.expected);
    held.add(new Held(collect(iterator, rows), iterator, expected));
  }

  /** Buckets that versions have in files that do not count any more. */
  private int inForgottenFiles(Object content) {
    if (content instanceof Node node) {
      return java.util.Arrays.stream(node.slots).mapToInt(this::inForgottenFiles).sum();
    }
    return content instanceof SpilledBucket spilled && !spill.hasFile(spilled.file()) ? 1 : 0;
  }

  /** Compares all versions, and counts the heap of each by walking through it. */
  public void checkAll() {
    for (Held each : held) {
      Map<UnsafeRow, UnsafeRow> found = new HashMap<>(each.begun);
      found.putAll(collect(each.rest, -1));
      same("an iterator that was begun earlier", each.expected, found);
    }
    List<HeapStateStoreMap> maps = new ArrayList<>();
    for (Version version : versions) {
      if (version != null) {
        version.check();
        maps.add(version.map);
        long counted = heapOf(version.map.rows.root(), new IdentityHashMap<>());
        same("bytes", counted, version.map.rows.weight().bytes);
        same("buckets in files that are forgotten", 0, inForgottenFiles(version.map.rows.root()));
      }
    }
  }

  /**
   * The heap of several maps, each a copy of the one before: found by walking through them, and as they estimate it.
   */
  public static long[] sharedHeap(List<HeapStateStoreMap> maps) {
    Map<Object, Boolean> seen = new IdentityHashMap<>();
    long counted = 0;
    long fixed = new HeapStateStoreMap(maps.get(0).schema, Option.empty(), null).estimatedSize() - Node.BYTES;
    for (HeapStateStoreMap map : maps) {
      counted += fixed + heapOf(map.rows.root(), seen);
    }
    return new long[] {counted, HeapStateStoreMap.estimatedSize(maps)};
  }

  /** The ways of reading that notice a row whose checksum is wrong. */
  public static List<String> noticingWrongChecksums() {
    RowSchema schema = new RowSchema(KEYS, VALUES, 1);
    HeapStateStoreMap map = new HeapStateStoreMap(schema, KeyValueIntegrityVerifier.create("model", true, 1), null);
    UnsafeRow key = key(1, "wrong");
    UnsafeRow value = value(10, 1);
    int checksum = KeyValueChecksum.create(key, new Some<>(value)) + 1;
    map.put(key, new StateStoreRowWithChecksum(value, checksum));
    HeapStateStoreMap copy = new HeapStateStoreMap(schema, KeyValueIntegrityVerifier.create("model", true, 1), null);
    copy.putAll(map);
    Map<String, Runnable> ways = new LinkedHashMap<>();
    ways.put("get", () -> copy.get(key));
    ways.put("iterator", () -> copy.iterator().next());
    ways.put("prefixScan", () -> copy.prefixScan(group(1)).next());
    List<String> noticing = new ArrayList<>();
    ways.forEach(
        (name, way) -> {
          try {
            way.run();
          } catch (Exception e) {
            noticing.add(name);
          }
        });
    // A snapshot must have the checksum as it came; the code that writes it checks it.
    if (((StateStoreRowWithChecksum) copy.entryIterator().next().getValue()).checksum() == checksum) {
      noticing.add("entryIterator");
    }
    return noticing;
  }

  /** Whether Spark takes the size that a version tells, and does not walk through it. */
  public boolean tellsItsSize(int number) {
    HeapStateStoreMap map = version(number).map;
    return SizeEstimator.estimate(map) == map.estimatedSize();
  }

  /** The heap of all versions that were not dropped, as {@link #sharedHeap}. */
  public long[] heap() {
    return sharedHeap(versions.stream().filter(v -> v != null).map(v -> v.map).toList());
  }

  public int nodes(int number) {
    Map<Object, Boolean> seen = new IdentityHashMap<>();
    heapOf(version(number).map.rows.root(), seen);
    return (int) seen.keySet().stream().filter(each -> each instanceof Node).count();
  }

  private static long heapOf(Object content, Map<Object, Boolean> seen) {
    if (content == null || seen.put(content, true) != null) {
      return 0;
    }
    if (content instanceof Node node) {
      long sum = Node.BYTES;
      for (int slot = 0; slot < Node.SLOTS; slot++) {
        boolean isCounted = slot > 0 && Node.isSame(node.slots[slot], node.slots[slot - 1]);
        sum += isCounted ? 0 : heapOf(node.slots[slot], seen);
      }
      return sum;
    }
    return RowTrie.heap(content);
  }

  private Version version(int number) {
    for (int each = number; ; each++) {
      Version found = versions.get(each % versions.size());
      if (found != null) {
        return found;
      }
    }
  }

  private UnsafeRowWrapper wrapped(UnsafeRow key, UnsafeRow value) {
    return hasChecksums
        ? new StateStoreRowWithChecksum(value, KeyValueChecksum.create(key, new Some<>(value)))
        : new StateStoreRow(value);
  }

  static UnsafeRow key(Integer group, String name) {
    Object[] fields = {group, UTF8String.fromString(name)};
    return KEY_PROJECTION.get().apply(new GenericInternalRow(fields)).copy();
  }

  static UnsafeRow group(Integer group) {
    return GROUP_PROJECTION.get().apply(new GenericInternalRow(new Object[] {group})).copy();
  }

  static UnsafeRow value(int length, int seed) {
    byte[] payload = new byte[length];
    new Random(seed).nextBytes(payload);
    return VALUE_PROJECTION.get().apply(new GenericInternalRow(new Object[] {payload})).copy();
  }

  private static Map<UnsafeRow, UnsafeRow> collect(scala.collection.Iterator<UnsafeRowPair> rows, int atMost) {
    Map<UnsafeRow, UnsafeRow> found = new HashMap<>();
    int left = atMost;
    while (left-- != 0 && rows.hasNext()) {
      UnsafeRowPair pair = rows.next();
      if (found.put(pair.key(), pair.value()) != null) {
        throw new AssertionError("a key comes twice: " + pair.key());
      }
    }
    return found;
  }

  private static void same(String what, Object expected, Object found) {
    if (!java.util.Objects.equals(expected, found)) {
      throw new AssertionError(what + ": expected " + expected + ", found " + found);
    }
  }

  private record Held(
      Map<UnsafeRow, UnsafeRow> begun,
      scala.collection.Iterator<UnsafeRowPair> rest,
      Map<UnsafeRow, UnsafeRow> expected) {}

  /** One version: our map, and the rows that it should have. */
  record Version(HeapStateStoreMap map, Map<UnsafeRow, UnsafeRow> expected) {
    Map<UnsafeRow, UnsafeRow> expectedOf(Integer group) {
      Map<UnsafeRow, UnsafeRow> rows = new HashMap<>(expected);
      rows.keySet().removeIf(key -> group == null ? !key.isNullAt(0) : key.isNullAt(0) || key.getInt(0) != group);
      return rows;
    }

    void check() {
      same("size", expected.size(), map.size());
      same("rows", expected, collect(map.iterator(), -1));
      Map<UnsafeRow, UnsafeRow> entries = new HashMap<>();
      scala.collection.Iterator<Map.Entry<UnsafeRow, UnsafeRowWrapper>> each = map.entryIterator();
      while (each.hasNext()) {
        Map.Entry<UnsafeRow, UnsafeRowWrapper> entry = each.next();
        entries.put(entry.getKey(), entry.getValue().unsafeRow());
      }
      same("entries", expected, entries);
      Set<UnsafeRow> keys = expected.keySet();
      keys.forEach(key -> same("a value", expected.get(key), map.get(key)));
      if (map.schema.hasPrefix()) {
        for (Integer group : new Integer[] {null, 0, 1, 2, 3}) {
          same("a prefix scan", expectedOf(group), collect(map.prefixScan(group(group)), -1));
        }
      }
    }
  }
}
