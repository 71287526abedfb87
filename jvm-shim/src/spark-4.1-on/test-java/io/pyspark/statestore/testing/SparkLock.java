package io.pyspark.statestore.testing;

import io.pyspark.statestore.heap.SnapshotWatch;
import io.pyspark.statestore.write.UploadWatch;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;

/**
 * Holds the lock on Spark's table of loaded stores, as a task does while it makes a store. Meanwhile nobody can ask
 * Spark whether a store is loaded.
 */
public final class SparkLock {
  private static final StateStoreProviderId SOMEBODY =
      new StateStoreProviderId(new StateStoreId("nowhere", 0, 0, "default"), new UUID(0, 1));

  private SparkLock() {}

  /** A thread that holds the lock. */
  public static final class Holder {
    private final CountDownLatch hasIt = new CountDownLatch(1);
    private final CountDownLatch mayGo = new CountDownLatch(1);
    private final CompletableFuture<Void> done = new CompletableFuture<>();

    private Holder(Runnable action) throws InterruptedException {
      started(
          "holds-the-lock-of-spark",
          done,
          () -> {
            synchronized (MaintainAfterBatch.loadedProviders()) {
              hasIt.countDown();
              action.run();
            }
          });
      hasIt.await();
    }

    /** Releases the lock. */
    public void release() {
      mayGo.countDown();
    }

    /** Waits until the thread has ended. */
    public void join(long seconds) throws Exception {
      done.get(seconds, TimeUnit.SECONDS);
    }

    private void await() {
      try {
        mayGo.await(60, TimeUnit.SECONDS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Holds the lock until it is released. */
  public static Holder hold() throws InterruptedException {
    Holder[] self = new Holder[1];
    CountDownLatch known = new CountDownLatch(1);
    self[0] =
        new Holder(
            () -> {
              try {
                known.await();
              } catch (InterruptedException e) {
                return;
              }
              self[0].await();
            });
    known.countDown();
    return self[0];
  }

  /** Makes a store's directory with the lock held, as a task does that makes the store. */
  public static Holder makeStore(CheckpointFileManager manager, Path directory) throws InterruptedException {
    return new Holder(() -> manager.mkdirs(directory));
  }

  /** A heap snapshot that maintenance writes while Spark says that its store is loaded. */
  public static final class Upload {
    private final SnapshotWatch watch;
    private final CompletableFuture<Void> done = new CompletableFuture<>();
    private volatile boolean loaded = true;

    private Upload(FileSystem fs, Path path, int bytes) {
      // This asks Spark for the sake of its lock. No store is loaded.
      watch =
          new SnapshotWatch(
              () -> {
                StateStore.isLoaded(SOMEBODY);
                return loaded;
              });
      started(
          "state-store-maintenance-thread-test", done, () -> UploadWatch.during(watch, () -> write(fs, path, bytes)));
    }

    /** From now on Spark says that the store is not loaded. */
    public void unload() {
      loaded = false;
    }

    public String whyObsolete() {
      return watch.whyObsolete();
    }

    /** Waits until the thread has ended. */
    public void join(long seconds) throws Exception {
      done.get(seconds, TimeUnit.SECONDS);
    }
  }

  public static Upload upload(FileSystem fs, Path path, int bytes) {
    return new Upload(fs, path, bytes);
  }

  private static void write(FileSystem fs, Path path, int bytes) {
    try (FSDataOutputStream out = fs.create(path, true)) {
      out.write(new byte[bytes]);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void started(String name, CompletableFuture<Void> done, Runnable action) {
    Thread thread =
        new Thread(
            () -> {
              try {
                action.run();
                done.complete(null);
              } catch (Throwable e) {
                done.completeExceptionally(e);
              }
            },
            name);
    thread.setDaemon(true);
    thread.start();
  }
}
