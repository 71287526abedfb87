package io.pyspark.statestore.read;

import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import java.io.IOException;
import java.util.Collection;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * Fetches of a store what an operator is going to read.
 *
 * @param <K> what is read, as the store has it
 */
public interface StoreAhead<K> {
  /** Whether reads would wait. */
  boolean isNeeded();

  /** Counts the reads that had to wait. */
  long waits();

  /** For how many keys at a time, so that what was fetched for the first one is still there. */
  long mostKeys(int windows);

  /**
   * Runs reads of the current thread that read nothing: each finds no row, and what it asks for is noted.
   *
   * @param reads makes a read; false where there is none left
   * @param bytes of memory that the keys may take; when there are more, no further read is made
   */
  List<K> keysOf(BooleanSupplier reads, long bytes);

  /**
   * Fetches what keys need. It fails where something cannot be fetched, and no reader has to know: each fetches what it
   * needs by itself.
   *
   * @param keys of {@link #keysOf}, in any order, and some of them more than once
   * @param parallelism how many requests are under way at the same time
   * @param isCancelled asked again and again
   * @return what was done, as one window
   */
  LookAhead fetch(Collection<K> keys, int parallelism, BooleanSupplier isCancelled) throws IOException;
}
