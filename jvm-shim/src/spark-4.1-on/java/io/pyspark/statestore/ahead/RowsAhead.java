package io.pyspark.statestore.ahead;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The input of an operator in a task, all rows in their order. While the operator works on a window of them, what it
 * will read for the next ones is fetched.
 *
 * <p>Where no read would wait, rows are handed on as they come. After a window for which nothing was fetched that is so
 * for a while, longer after each further one, and until a read of the operator has to wait.
 */
final class RowsAhead extends AbstractIterator<InternalRow> {
  private static final Logger LOG = LoggerFactory.getLogger(RowsAhead.class);

  /** At first a window is small, so that the operator soon has something to do; each next one is twice as large. */
  private static final int FIRST_ROWS = 256;

  /** Windows in memory: the one that the operator works on, and two whose state is being fetched. */
  private static final int WINDOWS = 3;

  private static final int MOST_DOUBLINGS = 6;

  /** Whoever waits longer for a window goes on without: a file system that does not answer is the operator's matter. */
  static volatile long mostWaitMs = 10_000;

  /** After so many rows that were handed on there is a look whether reads have waited. */
  private static final int LOOK_EVERY = 64;

  /** The same where no read would wait: twice as many rows after each look, up to this. */
  private static final int LOOK_SELDOM = 4096;

  private final Iterator<InternalRow> below;
  private final LookAheadExec.Settings settings;
  private final LookAheadExec.Figures figures;
  private final Asking asking;
  private final AtomicBoolean isCancelled = new AtomicBoolean();
  private final Deque<RowWindow> ahead = new ArrayDeque<>();
  private RowWindow current = new RowWindow();

  /** Whether something went wrong. */
  private boolean isOff;

  private int rowsOfNext;

  /** Rows that are handed on before the next window. */
  private long toHandOn;

  /** Rows that are handed on before there is a look. */
  private int untilLook;

  /** The same where no read would wait. */
  private int idleRows = LOOK_EVERY;

  /** Windows in a row for which nothing was fetched. */
  private int quiet;

  private long waits;

  RowsAhead(
      Iterator<InternalRow> below,
      LookAheadExec.Settings settings,
      LookAheadExec.Figures figures,
      StateKeys keys,
      TaskContext task,
      int partition) {
    this.below = below;
    this.settings = settings;
    this.figures = figures;
    rowsOfNext = Math.min(FIRST_ROWS, settings.rows());
    asking = new Asking(keys, settings.bytes() / WINDOWS, task, partition);
    task.addTaskCompletionListener((TaskCompletionListener) ended -> isCancelled.set(true));
  }

  @Override
  public boolean hasNext() {
    return current.size() > 0 || !ahead.isEmpty() || below.hasNext();
  }

  @Override
  public InternalRow next() {
    if (current.size() == 0) {
      fill();
      if (ahead.isEmpty()) {
        toHandOn--;
        untilLook--;
        return below.next();
      }
      current = ahead.remove();
      makeReady(current);
    }
    return current.rows().remove();
  }

  /** Copies rows, as many as may be in memory, where something is missing for them. */
  private void fill() {
    while (ahead.size() < WINDOWS && isOn() && below.hasNext()) {
      long most = mostRows();
      if (isOff) {
        return;
      }
      RowWindow window = new RowWindow();
      ahead.add(window);
      // What fails here is what the rows are made of, and the operator's to know.
      while (window.size() < most && window.bytes() < settings.bytes() / WINDOWS && below.hasNext()) {
        window.add(below.next());
      }
      rowsOfNext = Math.min(2 * rowsOfNext, settings.rows());
      try {
        window.start(asking, settings.parallelism(), isCancelled::get);
        for (RowWindow each : ahead) {
          each.goOn(asking, settings.parallelism(), isCancelled::get);
        }
      } catch (TimeoutException | RuntimeException | Error e) {
        giveUp(e);
      }
    }
  }

  /** How many rows the next window may have. */
  private long mostRows() {
    try {
      return Math.min(rowsOfNext, asking.mostKeys(WINDOWS));
    } catch (RuntimeException | Error e) {
      giveUp(e);
      return 0;
    }
  }

  private boolean isOn() {
    if (isOff || untilLook > 0) {
      return false;
    }
    try {
      if (!asking.isNeeded()) {
        untilLook = idleRows;
        idleRows = Math.min(2 * idleRows, LOOK_SELDOM);
        return false;
      }
      long now = asking.waits();
      if (now != waits && ahead.isEmpty()) {
        waits = now;
        quiet = 0;
        toHandOn = 0;
      }
      untilLook = toHandOn > 0 ? LOOK_EVERY : 0;
      return toHandOn <= 0;
    } catch (RuntimeException | Error e) {
      giveUp(e);
      return false;
    }
  }

  private void makeReady(RowWindow window) {
    if (isOff) {
      return;
    }
    try {
      window.await(asking, settings.parallelism(), isCancelled::get, mostWaitMs);
      figures.add(window.done());
      if (window.done().blocks() > 0) {
        quiet = 0;
      } else {
        toHandOn = (long) settings.rows() << Math.min(quiet++, MOST_DOUBLINGS);
      }
    } catch (TimeoutException | RuntimeException | Error e) {
      giveUp(e);
    }
  }

  private void giveUp(Throwable e) {
    isOff = true;
    isCancelled.set(true);
    LOG.info("No state is fetched ahead in the rest of this task; it is fetched when it is read", e);
  }
}
