package io.pyspark.statestore.ahead;

import io.pyspark.statestore.heap.HeapAhead;
import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import io.pyspark.statestore.rocks.AskedKey;
import io.pyspark.statestore.rocks.ReadAhead;
import java.io.IOException;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * Fetches of a store what an operator is going to read.
 *
 * @param <K> what is read, as the store has it
 */
interface StoreAhead<K> {
  /** Whether reads would wait. */
  boolean isNeeded();

  /** Counts the reads that had to wait. */
  long waits();

  /** For how many keys at a time. */
  long mostKeys(int windows);

  /** What reads of the current thread would ask for; see {@link io.pyspark.statestore.rocks.AskedRocksDB#keysOf}. */
  List<K> keysOf(BooleanSupplier reads, long bytes);

  /** Fetches what keys need, and says what was done, as one window. */
  LookAhead fetch(List<K> keys, int parallelism, BooleanSupplier isCancelled) throws IOException;

  /** Of a database of RocksDB. */
  static StoreAhead<AskedKey> of(ReadAhead rocks) {
    return new StoreAhead<>() {
      @Override
      public boolean isNeeded() {
        return rocks.isNeeded();
      }

      @Override
      public long waits() {
        return rocks.waits();
      }

      @Override
      public long mostKeys(int windows) {
        return rocks.mostKeys(windows);
      }

      @Override
      public List<AskedKey> keysOf(BooleanSupplier reads, long bytes) {
        return rocks.keysOf(reads, bytes);
      }

      @Override
      public LookAhead fetch(List<AskedKey> keys, int parallelism, BooleanSupplier isCancelled) throws IOException {
        return rocks.fetch(keys, parallelism, isCancelled);
      }
    };
  }

  /** Of a heap store whose rows may be on the local disk. */
  static StoreAhead<HeapAhead.Key> of(HeapAhead heap) {
    return new StoreAhead<>() {
      @Override
      public boolean isNeeded() {
        return heap.isNeeded();
      }

      @Override
      public long waits() {
        return heap.waits();
      }

      @Override
      public long mostKeys(int windows) {
        return Long.MAX_VALUE;
      }

      @Override
      public List<HeapAhead.Key> keysOf(BooleanSupplier reads, long bytes) {
        return heap.keysOf(reads, bytes);
      }

      @Override
      public LookAhead fetch(List<HeapAhead.Key> keys, int parallelism, BooleanSupplier isCancelled)
          throws IOException {
        return heap.fetch(keys, parallelism, isCancelled);
      }
    };
  }
}
