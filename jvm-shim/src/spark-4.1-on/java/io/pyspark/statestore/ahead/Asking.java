package io.pyspark.statestore.ahead;

import io.pyspark.statestore.ahead.StateKeys.Read;
import io.pyspark.statestore.ahead.StoresOfTasks.Opened;
import io.pyspark.statestore.rocks.AskedKey;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
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
  private final TaskContext task;
  private final int partition;
  private final UnsafeProjection key;

  /** The key and the number of a value, as a row; null where nothing is numbered. */
  private final UnsafeProjection numbered;

  Asking(StateKeys keys, TaskContext task, int partition) {
    this.keys = keys;
    this.task = task;
    this.partition = partition;
    key = UnsafeProjection$.MODULE$.create(keys.key(), keys.input());
    numbered = keys.counted() == null ? null : UnsafeProjection$.MODULE$.create(numberedKey());
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
    return key.apply(row);
  }

  boolean hasCounted() {
    return keys.counted() != null;
  }

  /** Whether something is missing of a store, so that looking ahead may save a wait. */
  boolean isNeeded() {
    for (Read read : keys.reads()) {
      Opened opened = opened(read);
      if (opened != null && opened.ahead().isNeeded()) {
        return true;
      }
    }
    return false;
  }

  /** Counts the reads of the stores that had to wait. */
  long waits() {
    long waits = 0;
    for (Read read : keys.reads()) {
      Opened opened = opened(read);
      waits += opened == null ? 0 : opened.ahead().waits();
    }
    return waits;
  }

  private Opened opened(Read read) {
    StatefulOperatorStateInfo info = keys.info();
    StateStoreId id = new StateStoreId(info.checkpointLocation(), info.operatorId(), partition, read.store());
    Opened opened = StoresOfTasks.of(task, id);
    return opened == null || opened.store().version() != info.storeVersion() ? null : opened;
  }

  /** What the operator reads first for these keys, by the store. */
  Map<Opened, List<AskedKey>> ask(Collection<UnsafeRow> of) {
    Map<Opened, List<AskedKey>> asked = new HashMap<>();
    for (Read read : keys.reads()) {
      ask(read, store -> of.forEach(each -> read(store, read, each)), asked);
    }
    return asked;
  }

  /** What it reads then: the values, whose number is known now. */
  Map<Opened, List<AskedKey>> askForCounted(Collection<UnsafeRow> of) {
    Map<Opened, List<AskedKey>> asked = new HashMap<>();
    Opened counts = opened(keys.counted().counts());
    if (counts != null) {
      Read values = keys.counted().values();
      Map<UnsafeRow, Long> numbers = new HashMap<>();
      for (UnsafeRow each : of) {
        UnsafeRow count = counts.store().get(each, keys.counted().counts().family());
        numbers.put(each, count == null ? 0 : Math.min(MOST_VALUES, count.getLong(0)));
      }
      ask(values, store -> numbers.forEach((each, number) -> readNumbered(store, values, each, number)), asked);
    }
    return asked;
  }

  private interface Reads {
    void of(ReadStateStore store);
  }

  private void ask(Read read, Reads reads, Map<Opened, List<AskedKey>> asked) {
    Opened opened = opened(read);
    if (opened != null && opened.ahead().isNeeded()) {
      List<AskedKey> found = opened.ahead().keysOf(() -> reads.of(opened.store()));
      asked.merge(opened, found, Asking::both);
    }
  }

  private static List<AskedKey> both(List<AskedKey> some, List<AskedKey> others) {
    return Stream.concat(some.stream(), others.stream()).toList();
  }

  private static void read(ReadStateStore store, Read read, UnsafeRow key) {
    switch (read.how()) {
      case ROW -> store.get(key, read.family());
      case PREFIX -> store.prefixScan(key, read.family()).hasNext();
      default -> ListsOfValues.prefixScan(store, key, read.family());
    }
  }

  private void readNumbered(ReadStateStore store, Read read, UnsafeRow key, long count) {
    for (long number = 0; number < count; number++) {
      InternalRow index = new GenericInternalRow(new Object[] {number});
      store.get(numbered.apply(new JoinedRow(key, index)), read.family());
    }
  }
}
