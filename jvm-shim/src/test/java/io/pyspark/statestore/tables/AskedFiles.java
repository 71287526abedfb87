package io.pyspark.statestore.tables;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/** A store with large files, of each of which look-ahead asks for half. What comes then is held back. */
public final class AskedFiles {
  /** What is asked for, and what lies between: more than what would come along. */
  private static final int PIECE = 256 << 10;

  private static final int PATIENCE_SECONDS = 60;

  private final LazyFiles store = new LazyFiles(false, 0);
  private final AtomicInteger ended = new AtomicInteger();
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task);
            thread.setUncaughtExceptionHandler((any, e) -> ended.incrementAndGet());
            return thread;
          });
  private final CountDownLatch open = new CountDownLatch(1);
  private final AtomicInteger held = new AtomicInteger();
  private final AtomicInteger ofRest = new AtomicInteger();
  private final List<Source> sources = new ArrayList<>();
  private final Path directory;

  /** Of the task that asks. */
  private AtomicBoolean isCancelled;

  private volatile Throwable failure;
  private volatile Thread scanner;

  /** Of so many files of so many bytes. */
  public AskedFiles(Path directory, int length, int count, Random random) throws IOException {
    this.directory = directory;
    store.loading(threads);
    for (int i = 0; i < count; i++) {
      Source source = new Source(i + ".sst", length, random);
      sources.add(source);
      store.add(source.file);
    }
  }

  /** A task asks; whether that is much decides about the rest. */
  public void ask(boolean isMuch) throws IOException {
    isCancelled = new AtomicBoolean();
    List<LazyFiles.Part> parts = new ArrayList<>();
    for (Source source : sources) {
      for (int at = 0; at < source.whole.length; at += 2 * PIECE) {
        parts.add(new LazyFiles.Part(source.name, at, at + PIECE));
      }
    }
    store.fetch(parts, 4, isMuch, isCancelled::get);
  }

  /** How many requests for the rest are held back. */
  public int held() {
    return held.get();
  }

  /** How many requests for the rest there were. */
  public int ofRest() {
    return ofRest.get();
  }

  /** How many threads something has ended that nobody has caught. */
  public int ended() {
    return ended.get();
  }

  /** From now on requests for the rest are answered. */
  public void letGo() {
    open.countDown();
  }

  /** The task is killed. */
  public void cancel() {
    isCancelled.set(true);
  }

  /** Another version has other files of these names. */
  public void loadAnother(Random random) throws IOException {
    for (Source source : sources) {
      Files.delete(directory.resolve(source.name));
      store.add(new Source(source.name, source.whole.length, random).file);
    }
  }

  /** What requests for the rest throw; null where they are answered. */
  public void fail(Throwable with) {
    failure = with;
  }

  /** No thread can be had from now on. */
  public void endThreads() {
    threads.shutdown();
  }

  /** Of how many files the rest is to come, in this process. */
  public static int waiting() {
    return RestOfFiles.waiting();
  }

  /** Reads all of the files, as a scan does. Its own requests are answered. */
  public void scan() throws IOException {
    scanner = Thread.currentThread();
    for (Source source : sources) {
      source.file.need(0, source.whole.length);
    }
  }

  /** Waits until the threads of the store do nothing any more. */
  public void awaitThreads() throws InterruptedException {
    threads.shutdown();
    if (!threads.awaitTermination(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
      throw new IllegalStateException("they go on");
    }
  }

  /** How many files are as they were written. */
  public int whole() throws IOException {
    int found = 0;
    for (Source source : sources) {
      boolean isRight = Arrays.equals(Files.readAllBytes(directory.resolve(source.name)), source.whole);
      found += source.file.isWhole() && isRight ? 1 : 0;
    }
    return found;
  }

  /** The store is closed. */
  public void close() throws InterruptedException {
    open.countDown();
    threads.shutdownNow();
    // They give back what all stores of the process share.
    threads.awaitTermination(60, TimeUnit.SECONDS);
    store.close();
  }

  /** What a file is fetched from. */
  private final class Source extends LocalOrigin {
    private final String name;
    private final byte[] whole;
    private final PartialFile file;
    private int fetched;

    private Source(String name, int length, Random random) throws IOException {
      super(store);
      this.name = name;
      whole = new byte[length];
      random.nextBytes(whole);
      file = new PartialFile(directory.resolve(name), length, this);
    }

    @Override
    public void read(long position, byte[] buffer, int length) throws IOException {
      if (isOfRest(length) && Thread.currentThread() != scanner) {
        ofRest.incrementAndGet();
        held.incrementAndGet();
        try {
          open.await();
        } catch (InterruptedException e) {
          throw new IOException(e);
        } finally {
          held.decrementAndGet();
        }
        if (failure instanceof Error error) {
          throw error;
        }
        if (failure != null) {
          throw new IOException(failure);
        }
      }
      System.arraycopy(whole, (int) position, buffer, 0, length);
    }

    private synchronized boolean isOfRest(int length) {
      fetched += length;
      return fetched > whole.length / 2;
    }
  }
}
