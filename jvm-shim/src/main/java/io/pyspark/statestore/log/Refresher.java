package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.Group;
import io.pyspark.statestore.format.MergedFileReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;

/**
 * Brings the index up to date with the file system: lists the merged files once, reads the indexes of new ones and the
 * new tails of those that others append to, forgets those that are gone.
 *
 * <p>Questions that come while a refresh runs share the next one: an answer always rests on a refresh that began after
 * the question.
 */
final class Refresher {
  /** How many recent occasions are remembered, so that all tasks of one stage share one refresh. */
  private static final int REMEMBERED = 256;

  private final LogContext context;
  private final Executor readers;
  private final Consumer<MergedFile> onGone;
  private final ReentrantLock running = new ReentrantLock();
  private final Map<Object, Boolean> occasions = new LinkedHashMap<>() {
    private static final long serialVersionUID = 1L;

    @Override
    protected boolean removeEldestEntry(Map.Entry<Object, Boolean> eldest) {
      return size() > REMEMBERED;
    }
  };
  private long begun;
  private long succeeded;
  private volatile long lastBeganNanos;
  private volatile boolean bornMerged;

  Refresher(LogContext context, Executor readers, Consumer<MergedFile> onGone) {
    this.context = context;
    this.readers = readers;
    this.onGone = onGone;
  }

  /** Whether a merged file says that this checkpoint never had plain state files. */
  boolean bornMerged() {
    return bornMerged;
  }

  void bornMerged(boolean value) {
    bornMerged = value;
  }

  /**
   * Makes sure that one refresh began after the first call for this occasion.
   *
   * @param occasion equal for all questions that may share an answer
   */
  void refreshFor(Object occasion) throws IOException {
    synchronized (occasions) {
      if (occasions.containsKey(occasion)) {
        return;
      }
    }
    refresh();
    synchronized (occasions) {
      occasions.put(occasion, true);
    }
  }

  /** Refreshes where the view is older than {@code maxAgeMs}. */
  void refreshIfOlderThan(long maxAgeMs) throws IOException {
    if ((System.nanoTime() - lastBeganNanos) / 1_000_000 > maxAgeMs) {
      refresh();
    }
  }

  /** Returns after a refresh that began after this call. */
  void refresh() throws IOException {
    long needed;
    synchronized (this) {
      needed = begun + 1;
    }
    running.lock();
    try {
      if (succeeded >= needed) {
        return;
      }
      long mine;
      synchronized (this) {
        mine = ++begun;
      }
      lastBeganNanos = System.nanoTime();
      run();
      succeeded = mine;
      context.metrics().refreshed(true, System.nanoTime() - lastBeganNanos);
    } finally {
      running.unlock();
    }
  }

  private void run() throws IOException {
    List<MergedFile> before = context.index().files().stream().filter(MergedFile::seen).toList();
    FileStatus[] listed = context.storage().list();
    Set<String> names = new HashSet<>();
    List<Callable<Void>> reads = new ArrayList<>();
    for (FileStatus status : listed) {
      String name = status.getPath().getName();
      names.add(name);
      MergedFile known = context.index().file(name);
      if (known == null || mayHaveGrown(known, status)) {
        reads.add(() -> read(name, known, status.getLen()));
      }
    }
    runAll(reads);
    for (MergedFile file : before) {
      if (!names.contains(file.name())) {
        context.index().remove(file);
        onGone.accept(file);
      }
    }
    if (!before.isEmpty() && context.index().files().isEmpty()) {
      // The checkpoint was deleted; who knows what is put in its place.
      bornMerged = !context.storage().hasPlainState();
    }
  }

  private static boolean mayHaveGrown(MergedFile file, FileStatus status) {
    return switch (file.writer()) {
      case THIS_PROCESS -> false;
      case NOBODY -> !file.wholeIndexRead();
      // The listed length of a file that is open on HDFS says nothing, so its end has to be looked at.
      case OTHER -> !isLocal(status) || status.getLen() != file.size();
    };
  }

  private static boolean isLocal(FileStatus status) {
    return "file".equals(status.getPath().toUri().getScheme());
  }

  private Void read(String name, MergedFile known, long statusLength) throws IOException {
    try (FSDataInputStream in = context.storage().open(name)) {
      MergedFileReader.Parsed parsed = MergedFileReader.readSince(
          Storage.ranges(context.storage().path(name).toString(), in, statusLength),
          known == null ? 0 : known.lastTrailer());
      MergedFile file = known;
      if (file == null) {
        file = context.index().addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, context.nowMs()));
        if (file.writer() == MergedFile.Writer.THIS_PROCESS) {
          return null;
        }
      }
      long trailer = file.lastTrailer();
      for (Group group : parsed.groups()) {
        apply(file, group);
        context.clock().observe(group.trailer().groupStamp());
        trailer = group.trailerOffset();
      }
      file.read(parsed.length(), trailer, parsed.isSealed() || file.writer() == MergedFile.Writer.NOBODY,
          context.nowMs());
      if (parsed.header() != null && HeaderMeta.saysBornMerged(parsed.header().metaJson())) {
        bornMerged = true;
      }
    } catch (FileNotFoundException e) {
      // Unlinked between the listing and now: what lived in it has been written elsewhere before.
      if (known != null) {
        context.index().remove(known);
        onGone.accept(known);
      }
    }
    return null;
  }

  private void apply(MergedFile file, Group group) {
    if (!group.trailer().isIndexOnly()) {
      context.index().apply(file, group.entries());
      return;
    }
    file.indexOnly();
    Map<Integer, List<Entry>> byFile = new LinkedHashMap<>();
    group.entries().forEach(e -> byFile.computeIfAbsent(e.fileRef(), r -> new ArrayList<>()).add(e));
    byFile.forEach((ref, entries) -> {
      MergedFile owner = ref == 0 ? file : context.index().file(group.names().get(ref - 1));
      if (owner != null) {
        context.index().apply(owner, entries);
      }
    });
  }

  private void runAll(List<Callable<Void>> reads) throws IOException {
    List<FutureTask<Void>> futures = Parallel.start(readers, context.options().readParallelism(), reads);
    try {
      for (FutureTask<Void> future : futures) {
        future.get();
      }
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException io ? io : new IOException(e.getCause());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while reading the indexes of " + context.checkpoint());
    } finally {
      futures.forEach(f -> f.cancel(false));
    }
  }
}
