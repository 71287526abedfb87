package io.pyspark.statestore.ahead;

import io.pyspark.statestore.ahead.StoresOfTasks.Opened;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import java.util.ArrayDeque;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** Rows that were copied ahead of their operator, and what is fetched for them. */
final class RowWindow {
  /** A window waits for no more than a thread of its own that hands requests to others. */
  private static final ExecutorService THREADS =
      Executors.newCachedThreadPool(Threads.daemons("pyspark-statestore-look-ahead"));

  /** Rows of which nobody knows the size count as much. */
  private static final int BYTES_OF_A_ROW = 100;

  private final Queue<InternalRow> rows = new ArrayDeque<>();
  private final Set<UnsafeRow> keys = new HashSet<>();
  private long bytes;

  /** What is fetched now; null where nothing is. */
  private Future<LookAhead> fetching;

  private boolean hasAskedForCounted;
  private LookAhead done = new LookAhead(1, 0, 0, 0);

  void add(InternalRow row) {
    InternalRow copy = row.copy();
    rows.add(copy);
    bytes += copy instanceof UnsafeRow unsafe ? unsafe.getSizeInBytes() : BYTES_OF_A_ROW;
  }

  Queue<InternalRow> rows() {
    return rows;
  }

  int size() {
    return rows.size();
  }

  long bytes() {
    return bytes;
  }

  /** What was done for it. */
  LookAhead done() {
    return done;
  }

  /** All rows are there: begins to fetch what is read first for their keys. */
  void start(Asking asking, int parallelism, BooleanSupplier isCancelled) {
    for (InternalRow row : rows) {
      UnsafeRow key = asking.keyOf(row);
      if (!keys.contains(key)) {
        keys.add(key.copy());
      }
    }
    fetch(asking.ask(keys), parallelism, isCancelled);
    hasAskedForCounted = !asking.hasCounted();
  }

  /** Goes on with what is read then, where what is read first is there. */
  void goOn(Asking asking, int parallelism, BooleanSupplier isCancelled) throws TimeoutException {
    if (!hasAskedForCounted && (fetching == null || fetching.isDone())) {
      finish(0);
      hasAskedForCounted = true;
      fetch(asking.askForCounted(keys), parallelism, isCancelled);
    }
  }

  /** Waits until all is there, or the task is to end. */
  void await(Asking asking, int parallelism, BooleanSupplier isCancelled, long millis) throws TimeoutException {
    finish(millis);
    goOn(asking, parallelism, isCancelled);
    finish(millis);
  }

  private void fetch(Map<Opened, List<Object>> asked, int parallelism, BooleanSupplier isCancelled) {
    if (asked.values().stream().allMatch(List::isEmpty)) {
      return;
    }
    fetching =
        THREADS.submit(
            () -> {
              LookAhead all = LookAhead.NONE;
              for (Map.Entry<Opened, List<Object>> each : asked.entrySet()) {
                LookAhead of = each.getKey().fetch(each.getValue(), parallelism, isCancelled);
                each.getKey().figures().accept(of);
                all = all.plus(of);
              }
              return all;
            });
  }

  private void finish(long millis) throws TimeoutException {
    if (fetching == null) {
      return;
    }
    try {
      LookAhead more = fetching.get(millis, TimeUnit.MILLISECONDS);
      done = done.plus(new LookAhead(0, more.keys(), more.present(), more.blocks()));
      fetching = null;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      fetching = null;
    } catch (ExecutionException e) {
      fetching = null;
      throw new IllegalStateException("Could not fetch ahead", e.getCause());
    }
  }
}
