package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Parallel;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/**
 * The SSTs of one store that are not whole. A read that finds a hole has it filled here; the {@link Hydrator} fills the
 * others meanwhile, unless the store is to have only what it asks for.
 */
public final class LazyFiles implements AutoCloseable {
  /** A read that needs more than this has it fetched by several threads. */
  private static final int SHARE = 1 << 20;

  /** The first hole that a scan finds has so many chunks after it fetched as well, and each next one twice as many. */
  private static final int AHEAD = 8;

  private static final int MAX_DOUBLINGS = 11;

  private static final long FIRST_REQUEST_NANOS = 1_000_000;

  /** How much a request counts in what they cost lately: one part in so many. */
  private static final int LATELY = 8;

  /** A part of a file, which is named without its directory. */
  public record Part(String name, long from, long to) {}

  private final boolean hydrates;
  private final long bytesPerSecond;

  /** Those of the loaded version, by name. */
  private final Map<String, PartialFile> open = new ConcurrentHashMap<>();

  /** Those that the loaded version does not have, and of which there are still hard links. */
  private final Set<PartialFile> retired = ConcurrentHashMap.newKeySet();

  private final AtomicLong progress = new AtomicLong();
  private final AtomicLong waits = new AtomicLong();

  /** What a request costs beside its bytes, as it was lately; see {@link #fetch}. */
  private volatile long requestNanos = FIRST_REQUEST_NANOS;

  private volatile Executor threads = Runnable::run;
  private volatile IOException damage;
  private volatile long touchedNanos = System.nanoTime();

  /**
   * Of a store that is not loaded yet.
   *
   * @param hydrates whether what nobody asks for is fetched as well
   * @param bytesPerSecond how fast; 0 without a bound
   */
  public LazyFiles(boolean hydrates, long bytesPerSecond) {
    this.hydrates = hydrates;
    this.bytesPerSecond = bytesPerSecond;
  }

  long bytesPerSecond() {
    return bytesPerSecond;
  }

  long touchedNanos() {
    return touchedNanos;
  }

  /** Counts what has arrived. Where two calls answer the same, nothing has arrived between them. */
  public long progress() {
    return progress.get();
  }

  /** Counts the reads that had to wait for what was missing. */
  public long waits() {
    return waits.get();
  }

  /** Whether RocksDB reads nothing but whole files. */
  public boolean isWhole() {
    return open.isEmpty();
  }

  /** Whether a file was found to be damaged, or to be lost, so that nothing may be built on the others. */
  public boolean isDamaged() {
    return damage != null;
  }

  /** Fails where a file was found to be damaged, or to be lost. */
  public void check() throws IOException {
    IOException found = damage;
    if (found != null) {
      throw found;
    }
  }

  /**
   * Has a range filled that a read could not understand.
   *
   * @param name of the file
   * @param holes how many the same scan has found before; less than 0 for the read of a single row
   * @param before {@link #progress} when the read began
   * @return false where all of it was there when the read began, so that it is not a hole what is wrong
   */
  public boolean supply(String name, long offset, long size, int holes, long before) throws IOException {
    touchedNanos = System.nanoTime();
    check();
    PartialFile file = open.get(name);
    if (file == null || file.has(offset, offset + size)) {
      return progress.get() != before;
    }
    waits.incrementAndGet();
    Hydrator.readWaits();
    try {
      fill(file, offset, size, holes);
    } finally {
      Hydrator.readWaits();
    }
    return true;
  }

  private void fill(PartialFile file, long offset, long size, int holes) throws IOException {
    if (holes < 0) {
      file.needBlock(offset, offset + size);
      return;
    }
    long end = offset + size + ((long) AHEAD * PartialFile.chunkBytes << Math.min(holes, MAX_DOUBLINGS));
    if (end - offset > 2 * SHARE) {
      inParallel(shares(file, offset, end), Parallel.READS);
    } else {
      file.need(offset, end);
    }
  }

  private static List<Callable<Void>> shares(PartialFile file, long from, long to) {
    List<Callable<Void>> shares = new ArrayList<>();
    for (long at = from; at < to; at += SHARE) {
      long start = at;
      shares.add(
          () -> {
            file.need(start, Math.min(start + SHARE, to));
            return null;
          });
    }
    return shares;
  }

  /**
   * Fetches parts that are about to be read, for which nobody waits yet. What lies between two of them comes along
   * where another request would take longer.
   *
   * @param parallelism how many requests are under way at the same time
   * @param isCancelled asked before each request
   * @return how many of the parts were missing
   */
  public int fetch(Collection<Part> parts, int parallelism, BooleanSupplier isCancelled) throws IOException {
    touchedNanos = System.nanoTime();
    check();
    Map<PartialFile, List<Part>> wanted = new HashMap<>();
    int missing = 0;
    for (Part part : parts) {
      PartialFile file = open.get(part.name());
      if (file != null && !file.has(part.from(), part.to())) {
        wanted.computeIfAbsent(file, any -> new ArrayList<>()).add(part);
        missing++;
      }
    }
    List<Callable<Void>> requests = new ArrayList<>();
    wanted.forEach((file, of) -> addRequests(file, of, isCancelled, requests));
    Hydrator.readWaits();
    try {
      inParallel(requests, parallelism);
    } finally {
      Hydrator.readWaits();
    }
    return missing;
  }

  private void addRequests(
      PartialFile file, List<Part> parts, BooleanSupplier isCancelled, List<Callable<Void>> requests) {
    parts.sort(Comparator.comparingLong(Part::from));
    long bridge = Math.min(SHARE, (long) (requestNanos / 1e9 * PartialFile.wholeBytesPerSecond));
    long from = parts.get(0).from();
    long to = parts.get(0).to();
    for (Part part : parts) {
      if (part.from() > to + bridge || part.to() > from + SHARE) {
        requests.add(request(file, from, to, isCancelled));
        from = Math.max(to, part.from());
      }
      to = Math.max(to, part.to());
    }
    requests.add(request(file, from, to, isCancelled));
  }

  private Callable<Void> request(PartialFile file, long from, long to, BooleanSupplier isCancelled) {
    return () -> {
      if (isCancelled.getAsBoolean()) {
        return null;
      }
      long began = System.nanoTime();
      file.needSoon(from, to);
      long nanos = System.nanoTime() - began - (long) (1e9 * (to - from) / PartialFile.wholeBytesPerSecond);
      requestNanos += (Math.max(0, nanos) - requestNanos) / LATELY;
      return null;
    };
  }

  /** Fetches all that is missing, and returns once all files are whole. */
  public void awaitWhole() throws IOException {
    touchedNanos = System.nanoTime();
    check();
    inParallel(
        open.values().stream()
            .<Callable<Void>>map(
                file ->
                    () -> {
                      file.awaitWhole();
                      return null;
                    })
            .toList(),
        Parallel.READS);
    check();
  }

  private void inParallel(List<Callable<Void>> tasks, int atOnce) throws IOException {
    List<FutureTask<Void>> started = Parallel.start(threads, atOnce, tasks);
    IOException failed = null;
    for (FutureTask<Void> each : started) {
      try {
        each.get();
      } catch (ExecutionException e) {
        failed = e.getCause() instanceof IOException io ? io : new IOException(e.getCause());
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("Interrupted while SSTs were fetched");
      }
    }
    if (failed != null) {
      throw failed;
    }
  }

  // ---- loads

  /** A load of the store begins. */
  void loading(Executor loadThreads) {
    threads = loadThreads;
  }

  void add(PartialFile file) {
    PartialFile before = open.put(file.path().getFileName().toString(), file);
    if (before != null) {
      retired.add(before);
    }
  }

  /** Something of a file has arrived. */
  void arrived() {
    progress.incrementAndGet();
  }

  /** All of a file is there, but it could not be checked. */
  void undecided(PartialFile file) {
    if (open.get(file.path().getFileName().toString()) == file) {
      Hydrator.add(this);
    }
  }

  /** A file is whole, or damaged. */
  void decided(PartialFile file, IOException failure) {
    if (failure != null) {
      // Of a file that the loaded version does not have nobody reads.
      if (open.get(file.path().getFileName().toString()) == file) {
        damage = failure;
      }
    } else {
      open.remove(file.path().getFileName().toString(), file);
      retired.remove(file);
    }
  }

  /**
   * The files of another version are in place. Forgets the partial ones that are nowhere any more.
   *
   * @param directory in which RocksDB opens the version
   * @param root below which the store has all that it has on this disk
   */
  public void loaded(Path directory, Path root) throws IOException {
    damage = null;
    if (!open.isEmpty() || !retired.isEmpty()) {
      retired.addAll(open.values());
      Map<String, PartialFile> inPlace = partialFilesIn(directory);
      retired.removeAll(inPlace.values());
      open.keySet().retainAll(inPlace.keySet());
      open.putAll(inPlace);
      // Files that became whole since they were looked for.
      open.values().removeIf(PartialFile::isWhole);
      Set<Object> found = keysBelow(root);
      for (PartialFile file : List.copyOf(retired)) {
        if (!found.contains(file.key())) {
          retired.remove(file);
          file.close();
        }
      }
    }
    touchedNanos = System.nanoTime();
    if (needsHydrator()) {
      Hydrator.add(this);
    }
  }

  /** Whether there is anything to do that nobody waits for. */
  boolean needsHydrator() {
    return damage == null && open.values().stream().anyMatch(this::isForHydrator);
  }

  /** What nobody asks for is fetched only where that is wanted; what is there has to be checked in any case. */
  boolean isForHydrator(PartialFile file) {
    return hydrates || file.isUnchecked();
  }

  /** All that RocksDB will find there and that has holes, whatever this knows of it. */
  private static Map<String, PartialFile> partialFilesIn(Path directory) throws IOException {
    Map<String, PartialFile> found = new HashMap<>();
    try (DirectoryStream<Path> all = Files.newDirectoryStream(directory)) {
      for (Path path : all) {
        PartialFile partial = PartialFile.at(path);
        if (partial != null) {
          found.put(path.getFileName().toString(), partial);
        }
      }
    }
    return found;
  }

  private static Set<Object> keysBelow(Path root) throws IOException {
    Set<Object> found = new HashSet<>();
    try (Stream<Path> all = Files.walk(root)) {
      for (Path path : (Iterable<Path>) all::iterator) {
        try {
          found.add(PartialFile.keyOf(path));
        } catch (NoSuchFileException e) {
          // An upload has just ended, and deletes its links.
        }
      }
    } catch (UncheckedIOException e) {
      if (!(e.getCause() instanceof NoSuchFileException)) {
        throw e.getCause();
      }
      // As above, of a directory. What was not seen stays for now.
      return new HashSet<>(PartialFile.allKeys());
    }
    return found;
  }

  // ---- the background

  /** The files that are not whole, what was touched last first. */
  List<PartialFile> toHydrate() {
    Collection<PartialFile> files = damage == null ? open.values() : List.of();
    return files.stream().sorted((a, b) -> Long.compare(b.touchedNanos(), a.touchedNanos())).toList();
  }

  /** The store is closed, and Spark has deleted its files. */
  @Override
  public void close() {
    Hydrator.remove(this);
    List<PartialFile> all = new ArrayList<>(open.values());
    all.addAll(retired);
    open.clear();
    retired.clear();
    for (PartialFile file : all) {
      try {
        file.close();
      } catch (IOException e) {
        // It is deleted, and nobody asks for it any more.
      }
    }
  }
}
