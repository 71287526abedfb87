package io.pyspark.statestore.reshape;

import io.pyspark.statestore.Unchecked;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Those rows of old partitions that belong into certain new ones, by {@link Places}; one old partition is open at a
 * time.
 */
final class MovedRows implements Iterator<InternalRow> {
  private final StoreRewrite store;
  private final int[] parents;
  private final Set<Integer> wanted;
  private final Places places;
  private final HashMap<Integer, Long> read = new HashMap<>();
  private final HashMap<Integer, Long> taken = new HashMap<>();
  private int at = -1;
  private PartitionReader<InternalRow> reader;
  private InternalRow row;

  /**
   * Finds the rows of some old partitions that belong into some new ones.
   *
   * @param parents the old partitions
   * @param wanted the new partitions
   */
  MovedRows(StoreRewrite store, int[] parents, int[] wanted) {
    this.store = store;
    this.parents = parents;
    this.wanted = Arrays.stream(wanted).boxed().collect(Collectors.toSet());
    places = new Places(store);
    TaskContext task = TaskContext.get();
    if (task != null) {
      task.addTaskCompletionListener((TaskCompletionListener) context -> close());
    }
  }

  /**
   * All rows of an old partition.
   *
   * @param read gets the number of the partition and how many rows it has, once all were given out
   */
  static Iterator<InternalRow> all(StoreRewrite store, int from, CollectionAccumulator<long[]> read) {
    MovedRows rows = new MovedRows(store, new int[] {from}, IntStream.range(0, store.partitions()).toArray());
    return new Iterator<>() {
      private boolean isTold;

      @Override
      public boolean hasNext() {
        boolean has = rows.hasNext();
        if (!has && !isTold) {
          isTold = true;
          read.add(new long[] {from, rows.read().get(from)});
        }
        return has;
      }

      @Override
      public InternalRow next() {
        return rows.next();
      }
    };
  }

  @Override
  public boolean hasNext() {
    try {
      while (row == null && (reader != null || at + 1 < parents.length)) {
        advance();
      }
      return row != null;
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
  }

  private void advance() throws IOException {
    if (reader == null) {
      reader = store.old().open(parents[++at]);
      read.put(parents[at], 0L);
      taken.put(parents[at], 0L);
    }
    if (!reader.next()) {
      close();
      return;
    }
    InternalRow found = reader.get();
    read.merge(parents[at], 1L, Long::sum);
    if (isWanted(found)) {
      taken.merge(parents[at], 1L, Long::sum);
      row = found;
    }
  }

  private boolean isWanted(InternalRow found) {
    return store.isSingle() || wanted.contains(places.of(found, parents[at]));
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    InternalRow found = row;
    row = null;
    return found;
  }

  /** How many rows each old partition has, of those that were read to their end. */
  HashMap<Integer, Long> read() {
    return read;
  }

  /** How many of them belong into the new partitions. */
  HashMap<Integer, Long> taken() {
    return taken;
  }

  /** A key or a value of such a row, of which Spark's reader gives the bytes. */
  static UnsafeRow unsafe(byte[] bytes, int columns) {
    UnsafeRow row = new UnsafeRow(columns);
    row.pointTo(bytes, bytes.length);
    return row;
  }

  private void close() {
    PartitionReader<InternalRow> open = reader;
    reader = null;
    if (open != null) {
      try {
        open.close();
      } catch (IOException e) {
        throw Unchecked.raise(e);
      }
    }
  }
}
