package io.pyspark.statestore.rocks;

import org.rocksdb.HistogramData;
import org.rocksdb.HistogramType;
import org.rocksdb.Statistics;

/**
 * Whether a database whose files are whole waits for its disk, by RocksDB's own statistics: reads of SSTs, and how long
 * they took. What it has in its cache of blocks is not among them, and what the operating system has takes some
 * microseconds.
 */
public final class DiskReads implements AutoCloseable {
  /** Reading ahead pays from about here: a thread takes ten microseconds or more to be handed a key. */
  private static final double SLOW_MICROS = 100;

  /** Of fewer reads nothing is concluded. */
  private static final long ENOUGH = 16;

  private static final int MOST_IGNORED = 64;

  /** Tests take another time for slow. */
  static volatile double slowMicros = SLOW_MICROS;

  /** Null once it is closed: another thread may unload a store that a task uses. */
  private Statistics statistics;

  private long count;
  private long micros;
  private boolean areSlow;

  /** How often slow reads are ignored now, and how often after the next time that nothing was found. */
  private int toIgnore;

  private int ignored = 1;

  /** Of a database, which does not have to be open yet. They are closed with this. */
  public DiskReads(Statistics statistics) {
    this.statistics = statistics;
  }

  /** Whether reads were slow when there were enough of them. It costs a call of RocksDB. */
  public synchronized boolean areSlow() {
    if (statistics == null) {
      return false;
    }
    HistogramData reads = statistics.getHistogramData(HistogramType.SST_READ_MICROS);
    if (reads.getCount() < count || reads.getSum() < micros) {
      // Spark resets them when it loads a version.
      count = 0;
      micros = 0;
    }
    long more = reads.getCount() - count;
    if (more >= ENOUGH) {
      boolean wereSlow = (double) (reads.getSum() - micros) / more >= slowMicros;
      areSlow = wereSlow && toIgnore <= 0;
      toIgnore -= wereSlow ? 1 : 0;
      count = reads.getCount();
      micros = reads.getSum();
    }
    return areSlow;
  }

  /**
   * Keys were asked for. If nothing had to be read for them, it was something else that was slow, mostly a compaction,
   * which reads much at a time: more and more of that is ignored.
   */
  synchronized void asked(boolean foundSlow) {
    areSlow &= foundSlow;
    toIgnore = foundSlow ? 0 : ignored;
    ignored = foundSlow ? 1 : Math.min(2 * ignored, MOST_IGNORED);
  }

  @Override
  public synchronized void close() {
    if (statistics != null) {
      statistics.close();
      statistics = null;
    }
  }

  /** How many of the blocks that were read have waited for the disk; all or none, by what they took together. */
  static int slow(long blocks, long nanos) {
    return blocks > 0 && nanos >= blocks * slowMicros * 1000 ? Math.toIntExact(blocks) : 0;
  }
}
