package io.pyspark.statestore.ahead;

import io.pyspark.statestore.ahead.StateKeys.Read;
import io.pyspark.statestore.ahead.StoresOfTasks.Opened;
import io.pyspark.statestore.rocks.AskedKey;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Has the stores of one task say which keys an operator will read. For the thread that uses the stores. */
final class Asking {
  /** Of a key with more values the join itself fetches the rest. */
  private static final long MOST_VALUES = 1000;

  private final StateKeys keys;
  private final long bytesOfKeys;
  private final TaskContext task;
  private final int partition;

  /** A read of each store. */
  private final List<Read> stores = new ArrayList<>();

  /** Null until a key was asked for: most tasks ask for none, and Spark generates code for it. */
  private UnsafeProjection key;

  /** The key and the number of a value, as a row; null until one was asked for. */
  private UnsafeProjection numbered;

  /** In a task, for windows whose keys take no more than so many bytes. */
  Asking(StateKeys keys, long bytesOfKeys, TaskContext task, int partition) {
    this.keys = keys;
    this.bytesOfKeys = bytesOfKeys;
    this.task = task;
    this.partition = partition;
    stores.addAll(keys.reads());
    if (keys.counted() != null) {
      stores.add(keys.counted().values());
    }
  }

  private StructType numberedKey() {
    StructType schema = new StructType();
    for (int field = 0; field < keys.key().size(); field++) {
      Expression each = keys.key().apply(field);
      schema = schema.add("field" + field, each.dataType(), each.nullable());
    }
    return schema.add("index", DataTypes.LongType, false);
  }

  /** The key of a row, which is overwritten by the next one. */
  UnsafeRow keyOf(InternalRow row) {
    if (key == null) {
      key = UnsafeProjection$.MODULE$.create(keys.key(), keys.input());
    }
    return key.apply(row);
  }

  boolean hasCounted() {
    return keys.counted() != null;
  }

  /** For how many keys at a time. */
  long mostKeys(int windows) {
    return stores.stream()
        .map(this::needed)
        .filter(Objects::nonNull)
        .mapToLong(opened -> opened.ahead().mostKeys(windows))
        .min()
        .orElse(Long.MAX_VALUE);
  }

  /** Whether reads of a store would wait, so that looking ahead may save it. */
  boolean isNeeded() {
    return stores.stream().map(this::opened).anyMatch(opened -> opened != null && opened.ahead().isNeeded());
  }

  /** Counts the reads of the stores that had to wait. */
  long waits() {
    return stores.stream()
        .map(this::opened)
        .filter(Objects::nonNull)
        .distinct()
        .mapToLong(opened -> opened.ahead().waits())
        .sum();
  }

  private Opened opened(Read read) {
    StatefulOperatorStateInfo info = keys.info();
    StateStoreId id = new StateStoreId(info.checkpointLocation(), info.operatorId(), partition, read.store());
    Opened opened = StoresOfTasks.of(task, id);
    return opened == null || opened.store().version() != info.storeVersion() ? null : opened;
  }

  /** What the operator reads first for these keys, by the store. */
  Map<Opened, List<Object>> ask(Collection<UnsafeRow> of) {
    Map<Opened, List<Object>> asked = new HashMap<>();
    for (Read read : keys.reads()) {
      Opened opened = needed(read);
      if (opened != null) {
        Iterator<UnsafeRow> each = of.iterator();
        ask(opened, () -> each.hasNext() && read(opened.store(), read, each.next()), asked);
      }
    }
    return asked;
  }

  /** What it reads then: the values, whose number is known now. */
  Map<Opened, List<Object>> askForCounted(Collection<UnsafeRow> of) {
    Map<Opened, List<Object>> asked = new HashMap<>();
    Read values = keys.counted().values();
    Opened counts = opened(keys.counted().counts());
    Opened opened = needed(values);
    if (counts == null || opened == null) {
      return asked;
    }
    Deque<Numbered> numbers = new ArrayDeque<>();
    long left = bytesOfKeys;
    for (UnsafeRow each : of) {
      UnsafeRow count = left <= 0 ? null : counts.store().get(each, keys.counted().counts().family());
      if (count != null) {
        Numbered number = new Numbered(each, Math.min(MOST_VALUES, count.getLong(0)));
        numbers.add(number);
        left -= number.count * AskedKey.memoryOf(each.getSizeInBytes());
      }
    }
    ask(opened, () -> readNext(opened.store(), values, numbers), asked);
    return asked;
  }

  /** A key whose values have numbers. */
  private static final class Numbered {
    private final UnsafeRow key;
    private final long count;
    private long next;

    Numbered(UnsafeRow key, long count) {
      this.key = key;
      this.count = count;
    }
  }

  private boolean readNext(ReadStateStore store, Read read, Deque<Numbered> numbers) {
    while (!numbers.isEmpty() && numbers.getFirst().next >= numbers.getFirst().count) {
      numbers.removeFirst();
    }
    if (numbers.isEmpty()) {
      return false;
    }
    Numbered first = numbers.getFirst();
    if (numbered == null) {
      numbered = UnsafeProjection$.MODULE$.create(numberedKey());
    }
    InternalRow index = new GenericInternalRow(new Object[] {first.next++});
    store.get(numbered.apply(new JoinedRow(first.key, index)), read.family());
    return true;
  }

  /** The store of a read, where that would wait. */
  private Opened needed(Read read) {
    Opened opened = opened(read);
    return opened != null && opened.ahead().isNeeded() ? opened : null;
  }

  private void ask(Opened opened, BooleanSupplier reads, Map<Opened, List<Object>> asked) {
    asked.merge(opened, opened.keysOf(reads, bytesOfKeys), Asking::both);
  }

  private static List<Object> both(List<Object> some, List<Object> others) {
    return Stream.concat(some.stream(), others.stream()).toList();
  }

  private static boolean read(ReadStateStore store, Read read, UnsafeRow key) {
    switch (read.how()) {
      case ROW -> store.get(key, read.family());
      case PREFIX -> store.prefixScan(key, read.family()).hasNext();
      default -> ListsOfValues.prefixScan(store, key, read.family());
    }
    return true;
  }
}
