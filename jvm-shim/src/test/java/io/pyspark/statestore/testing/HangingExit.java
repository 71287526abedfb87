package io.pyspark.statestore.testing;

import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.rocksdb.FlushOptions;
import org.rocksdb.InfoLogLevel;
import org.rocksdb.Logger;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;

/**
 * A process that does not end: RocksDB waits for its threads in the last step of an exit, and one of them is in a
 * logger that is written in Java.
 */
public final class HangingExit {
  private HangingExit() {}

  /**
   * Says when a thread of RocksDB logs, and exits when it is told to.
   *
   * @param arguments where the database is to be
   */
  @SuppressWarnings("deprecation") // RocksDB of Spark 3.5 has no other constructor of a logger
  public static void main(String[] arguments) throws RocksDBException, InterruptedException, IOException {
    RocksDB.loadLibrary();
    CountDownLatch logs = new CountDownLatch(1);
    Thread main = Thread.currentThread();
    // Nothing but the flush is to log: an exit waits for its thread, but not for the one that dumps statistics.
    Options options = new Options().setCreateIfMissing(true).setStatsDumpPeriodSec(0);
    options.setLogger(
        new Logger(options) {
          @Override
          protected void log(InfoLogLevel level, String message) {
            if (Thread.currentThread() != main) {
              logs.countDown();
              LockSupport.park();
            }
          }
        });
    RocksDB database = RocksDB.open(options, arguments[0]);
    database.put(new byte[] {1}, new byte[] {1});
    database.flush(new FlushOptions().setWaitForFlush(false));
    logs.await();
    System.out.println("logs");
    System.in.read();
    System.exit(0);
  }
}
