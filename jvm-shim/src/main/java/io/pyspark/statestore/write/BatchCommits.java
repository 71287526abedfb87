package io.pyspark.statestore.write;

import io.pyspark.statestore.learn.IndexTransport;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * This process's commits that wait for the end of their batch (option {@code groupCommit.scope=batch}). A task closes
 * its changelog or delta and goes on; the commit is kept here, with the stamp that it got when it was closed. Before
 * the task ends, the driver has heard that this process owes something to the batch ({@link BatchDebts}). When the
 * batch ends, the driver calls, and all its commits are written as one group.
 */
public final class BatchCommits {
  private static final Logger LOG = LoggerFactory.getLogger(BatchCommits.class);
  private static final long PAUSE_MS = 1_000;

  /** Where this process says what it owes. */
  public interface Driver {
    /** Returns when the driver knows that this process owes commits to a batch. */
    void owes(String run, long batch) throws IOException;

    /** What to do with them; asked again and again. */
    BatchDebts.Call call(String run, long batch) throws IOException;

    /**
     * @param failure why they are not durable; empty where they are
     */
    void paid(String run, long batch, String failure) throws IOException;
  }

  /** Where the driver's own process runs the tasks. */
  static Driver here(String stateDirectory, long writer) {
    return new Driver() {
      @Override
      public void owes(String run, long batch) throws IOException {
        BatchDebts.owes(stateDirectory, new BatchDebts.Debtor(writer, run, batch), this);
      }

      @Override
      public BatchDebts.Call call(String run, long batch) throws IOException {
        return IndexTransport.await(BatchDebts.call(stateDirectory, new BatchDebts.Debtor(writer, run, batch)));
      }

      @Override
      public void paid(String run, long batch, String failure) {
        BatchDebts.paid(stateDirectory, new BatchDebts.Debtor(writer, run, batch), failure);
      }
    };
  }

  /** Makes commits durable, and reported. */
  public interface Writes {
    void write(List<Commit> commits) throws IOException;
  }

  private final Driver driver;
  private final Writes writes;
  private final Executor threads;
  private final String checkpoint;
  private final Map<Key, Batch> batches = new HashMap<>();

  private record Key(String run, long number) {}

  public BatchCommits(Driver driver, Writes writes, Executor threads, String checkpoint) {
    this.driver = driver;
    this.writes = writes;
    this.threads = threads;
    this.checkpoint = checkpoint;
  }

  /** What this process has of one batch. */
  public final class Batch {
    private final Key key;
    private final List<Commit> commits = new ArrayList<>();
    private final CompletableFuture<Void> owed = new CompletableFuture<>();
    private boolean isOver;

    /** Why its commits are gone, though the driver may still wait for them; null where they are not. */
    private String givenUp;

    private Batch(Key key) {
      this.key = key;
    }

    /** Keeps a commit until the batch ends. */
    void add(Commit commit) throws IOException {
      synchronized (BatchCommits.this) {
        if (isOver) {
          throw new IOException("Batch " + key.number + " of " + checkpoint + " has ended without this task");
        }
        commits.add(commit);
      }
    }

    /**
     * Takes back the commit of a task that failed. Once the batch ends it is written, as one is that was durable before
     * its task failed: by then all that counts has ended, so another attempt of the task counts. Its payload is in use.
     */
    void drop(Commit commit) {
      synchronized (BatchCommits.this) {
        if (!isOver && commits.remove(commit)) {
          closePayloads(List.of(commit));
        }
      }
    }

    /** Waits until the driver knows that something is owed. */
    public void awaitOwed() throws IOException {
      IndexTransport.await(owed);
    }
  }

  /** The batch that a task works for. The first call says in the driver that something is owed, without waiting. */
  public Batch batch(String run, long number) throws IOException {
    Key key = new Key(run, number);
    Batch made;
    synchronized (this) {
      Batch known = batches.get(key);
      if (known != null) {
        return known;
      }
      made = new Batch(key);
      batches.put(key, made);
      forgetBefore(key);
    }
    try {
      threads.execute(() -> serve(made));
    } catch (RuntimeException | Error e) {
      // A process at its limit of threads has an OutOfMemoryError here. Tasks that have the batch by now fail, too.
      made.owed.completeExceptionally(e);
      forget(made);
      throw new IOException("No thread can wait for the end of batch " + number + " of " + checkpoint + ": " + e, e);
    }
    return made;
  }

  /** What an earlier batch of the same run still has was of tasks that did not count. */
  private void forgetBefore(Key newest) {
    for (Iterator<Batch> all = batches.values().iterator(); all.hasNext(); ) {
      Batch batch = all.next();
      if (batch.key.run.equals(newest.run) && batch.key.number < newest.number) {
        all.remove();
        giveUp(batch, "it has begun a later batch of the same run");
      }
    }
  }

  private void serve(Batch batch) {
    try {
      driver.owes(batch.key.run, batch.key.number);
      batch.owed.complete(null);
      BatchDebts.Call call = BatchDebts.Call.WAIT;
      while (call == BatchDebts.Call.WAIT) {
        call = call(batch);
      }
      if (call == BatchDebts.Call.WRITE) {
        pay(batch);
      } else {
        sayGivenUp(batch);
      }
    } catch (IOException | RuntimeException | Error e) {
      // The tasks fail, and those that are tried again begin the batch anew.
      batch.owed.completeExceptionally(e);
    } finally {
      forget(batch);
    }
  }

  private BatchDebts.Call call(Batch batch) {
    synchronized (this) {
      if (batch.isOver) {
        return BatchDebts.Call.FORGET;
      }
    }
    try {
      return driver.call(batch.key.run, batch.key.number);
    } catch (IOException | RuntimeException | Error e) {
      LOG.info("Could not ask whether batch {} of {} ends; asking again", batch.key.number, checkpoint, e);
      try {
        Thread.sleep(PAUSE_MS);
        return BatchDebts.Call.WAIT;
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        return BatchDebts.Call.FORGET;
      }
    }
  }

  private void pay(Batch batch) {
    String failure = "";
    try {
      writes.write(take(batch));
    } catch (IOException | RuntimeException | Error e) {
      String why = e.getMessage();
      // Nothing would say that all is durable.
      failure = why == null || why.isEmpty() ? e.toString() : why;
    }
    try {
      driver.paid(batch.key.run, batch.key.number, failure);
    } catch (IOException | RuntimeException | Error e) {
      LOG.info(
          "Could not say that batch {} of {} is durable; the driver counts this process as lost",
          batch.key.number,
          checkpoint,
          e);
    }
  }

  /** What is to be written. Of a batch that was given up, that is not nothing: it is what can no longer be written. */
  private synchronized List<Commit> take(Batch batch) throws IOException {
    if (batch.givenUp != null) {
      throw new IOException(batch.givenUp);
    }
    batch.isOver = true;
    return List.copyOf(batch.commits);
  }

  private synchronized void forget(Batch batch) {
    batches.remove(batch.key, batch);
    end(batch);
  }

  private void end(Batch batch) {
    batch.isOver = true;
    closePayloads(batch.commits);
    batch.commits.clear();
  }

  private void giveUp(Batch batch, String why) {
    batch.givenUp = why;
    end(batch);
  }

  private static void closePayloads(List<Commit> commits) {
    commits.forEach(commit -> commit.items().forEach(item -> item.payload().close()));
  }

  /** Whether anything waits. */
  synchronized boolean isEmpty() {
    return batches.isEmpty();
  }

  /** The log is given up. The driver hears that what is owed will not be paid. */
  void close() {
    List<Batch> all;
    synchronized (this) {
      all = List.copyOf(batches.values());
      all.forEach(batch -> giveUp(batch, "its log of the checkpoint was closed"));
      batches.clear();
    }
    for (Batch batch : all) {
      try {
        threads.execute(() -> sayGivenUp(batch));
      } catch (RuntimeException | Error e) {
        LOG.debug("No thread can say that batch {} of {} was given up", batch.key.number, checkpoint, e);
      }
    }
  }

  /** Tells the driver at once, where a batch was given up. When the driver calls it in, it hears the same. */
  private void sayGivenUp(Batch batch) {
    String why;
    synchronized (this) {
      why = batch.givenUp;
    }
    if (why != null) {
      try {
        driver.paid(batch.key.run, batch.key.number, why);
      } catch (IOException | RuntimeException | Error e) {
        LOG.debug("Batch {} of {} was given up", batch.key.number, checkpoint, e);
      }
    }
  }
}
