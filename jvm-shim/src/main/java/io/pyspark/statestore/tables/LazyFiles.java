package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Parallel;
import java.io.IOException;
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
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.function.Predicate;

/**
 * The SSTs of one store that are not whole. A read that finds a hole has it filled here; the {@link Hydrator} fills the
 * others meanwhile. Where the store is to have only what it asks for, it does so for files of which half was asked for.
 *
 * <p>Of a store whose state is in the checkpoint ({@link LocalCache}) all SSTs come here as soon as they are durable
 * there, and none ever counts as whole, because parts of it may go again.
 */
public final class LazyFiles implements AutoCloseable {
  /** A read that needs more than this has it fetched by several threads. */
  private static final int SHARE = 1 << 20;

  /** The first hole that a scan finds has so many chunks after it fetched as well, and each next one twice as many. */
  private static final int AHEAD = 8;

  private static final int MAX_DOUBLINGS = 11;

  /** Where there is room for so much only, a scan has one part in so many of that fetched ahead. */
  private static final int AHEAD_SHARE = 16;

  /** A smaller file that RocksDB has made stays: its end is not much less. */
  private static final long SMALLEST_MADE = 64 << 10;

  private static final long MOST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** A part of a file, which is named without its directory. */
  public record Part(String name, long from, long to) {}

  /** Those of which parts may go again. */
  private static final Set<LazyFiles> CACHED = ConcurrentHashMap.newKeySet();

  private final boolean hydrates;
  private final long bytesPerSecond;

  /** Null where nothing of a file goes again. */
  private final LocalCache cache;

  /** The store's directory in the checkpoint; null where nobody has to find the store by it. */
  private final org.apache.hadoop.fs.Path store;

  /** What counts as being on the disk, beside the files of which parts may go; null without a cache. */
  private final StayingFiles staying;

  /** The files that the loaded version does not have. */
  private final RetiredFiles retired = new RetiredFiles();

  /** In which RocksDB has its files, and below which the store has all that it has; null before the first load. */
  private volatile Path directory;

  private volatile Path root;

  private final Set<Hold> holds = new HashSet<>();
  private volatile boolean isClosed;

  /** How often the store was loaded, and whether it is being loaded now. Guarded by the holds. */
  private int loads;

  private boolean isLoading;

  /** Those of the loaded version, by name. */
  private final Map<String, PartialFile> open = new ConcurrentHashMap<>();

  private final AtomicLong progress = new AtomicLong();
  private final AtomicLong waits = new AtomicLong();

  private final RequestCosts costs = new RequestCosts();

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
    this(hydrates, bytesPerSecond, null, null);
  }

  LazyFiles(boolean hydrates, long bytesPerSecond, LocalCache cache, org.apache.hadoop.fs.Path store) {
    this.hydrates = hydrates;
    this.bytesPerSecond = bytesPerSecond;
    this.cache = cache;
    staying = cache == null ? null : new StayingFiles(cache);
    this.store = store;
  }

  /**
   * Of a store that is not loaded yet, and of which the disk has no more than there is room for.
   *
   * @param store its directory in the checkpoint, with its real name; qualified
   * @param limit bytes that all stores of this process may have
   */
  public static LazyFiles cached(org.apache.hadoop.fs.Path store, long limit) {
    LazyFiles made = new LazyFiles(false, 0, LocalCache.ofProcess(), store);
    made.cache.opened(made, limit);
    CACHED.add(made);
    return made;
  }

  /** Whether a store that is open has its state in the checkpoint. */
  static boolean isCached(org.apache.hadoop.fs.Path store) {
    return CACHED.stream().anyMatch(each -> each.store.equals(store));
  }

  /** Null where nothing of a file goes again. */
  LocalCache cache() {
    return cache;
  }

  /** The bytes that all stores with a cache may have on the disk. */
  public long limit() {
    return cache.limit();
  }

  /** Whether parts of files may go again. */
  public boolean isCached() {
    return cache != null;
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

  /** Whether RocksDB reads nothing but whole files, from now on. */
  public boolean isWhole() {
    return cache == null && open.isEmpty();
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
   * @param reader for which it stays until {@link #letGo}
   * @return false where all of it was there when the read began, so that it is not a hole what is wrong
   */
  public boolean supply(String name, long offset, long size, int holes, long before, Object reader) throws IOException {
    touchedNanos = System.nanoTime();
    check();
    PartialFile file = open.get(name);
    if (file == null || file.has(offset, offset + size)) {
      return progress.get() != before || file == null && isDeleted(name);
    }
    waits.incrementAndGet();
    Hydrator.readWaits();
    try {
      if (cache != null) {
        cache.hold(file, offset, offset + size, reader);
      }
      fill(file, offset, size, holes);
    } catch (IOException e) {
      // Where RocksDB has deleted the file since the read, it finds the row in another one now.
      if (!isDeleted(name)) {
        throw e;
      }
    } finally {
      Hydrator.readWaits();
    }
    return true;
  }

  /** Whether RocksDB has compacted a file away, which may never have been whole. */
  private boolean isDeleted(String name) {
    return directory != null && !open.containsKey(name) && Files.notExists(directory.resolve(name));
  }

  /** A read is over that has had holes filled. */
  public void letGo(Object reader) {
    if (cache != null) {
      cache.letGo(reader);
    }
  }

  /**
   * Has a range made right that was there, and that a read could not understand: fetched once more where only parts of
   * files are here, and otherwise all that is missing, which checks the files.
   */
  public void renew(Part part) throws IOException {
    PartialFile file = cache == null || part == null ? null : open.get(part.name());
    if (cache == null) {
      awaitWhole();
    } else if (file != null) {
      file.renew(part.from(), part.to());
    }
  }

  private void fill(PartialFile file, long offset, long size, int holes) throws IOException {
    if (holes < 0) {
      file.needBlock(offset, offset + size);
    } else {
      fillAhead(file, offset, offset + size + ahead(holes));
    }
    wasAskedFor(file);
  }

  private void fillAhead(PartialFile file, long from, long to) throws IOException {
    if (to - from > 2 * SHARE) {
      inParallel(shares(file, from, to), Parallel.READS);
    } else {
      file.need(from, to);
    }
  }

  /** How much comes along with the hole that a scan has found after so many others. */
  private long ahead(int holes) {
    long least = (long) AHEAD * PartialFile.chunkBytes;
    long ahead = least << Math.min(holes, MAX_DOUBLINGS);
    return cache == null ? ahead : Math.min(ahead, Math.max(least, cache.limit() / AHEAD_SHARE));
  }

  /** Of a file of which half was asked for the rest comes, too. */
  private void wasAskedFor(PartialFile file) {
    if (file.wasAskedFor()) {
      Hydrator.add(this);
    }
  }

  /** Whether the loaded version has a file, and nothing is wrong with any of it. */
  private boolean isLoaded(PartialFile file) {
    return damage == null && open.get(nameOf(file)) == file;
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
   * @param isMuch whether so much was asked for by now that of files of which half is here the rest is to come at once
   * @param isCancelled asked before each request
   * @return how many of the parts were missing
   */
  public int fetch(Collection<Part> parts, int parallelism, boolean isMuch, BooleanSupplier isCancelled)
      throws IOException {
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
    boolean isCrowded = cache != null && cache.isCrowded();
    PartRequests requests = new PartRequests(costs, isCrowded, this::wasAskedFor, isCancelled);
    wanted.forEach(requests::add);
    Hydrator.readWaits();
    try {
      inParallel(requests.all(), parallelism);
    } finally {
      Hydrator.readWaits();
    }
    if (isMuch) {
      fetchRests(isCancelled);
    }
    return missing;
  }

  private void fetchRests(BooleanSupplier isCancelled) {
    for (PartialFile file : open.values()) {
      if (file.isForRest()) {
        RestOfFiles.fetch(file, costs, threads, () -> isCancelled.getAsBoolean() || !isLoaded(file));
      }
    }
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
    Parallel.all(threads, atOnce, tasks, "SSTs were fetched");
  }

  // ---- loads

  /** Files of another version are about to take the places of those that are there. */
  public void loadBegins() {
    synchronized (holds) {
      isLoading = true;
      loads++;
    }
  }

  /** A load of the store begins. */
  void loading(Executor loadThreads) {
    threads = loadThreads;
  }

  void add(PartialFile file) {
    PartialFile before = open.put(nameOf(file), file);
    if (before != null) {
      retired.add(before);
    }
    if (cache != null) {
      cache.add(file);
    }
  }

  private static String nameOf(PartialFile file) {
    return file.path().getFileName().toString();
  }

  /** Something of a file has arrived. */
  void arrived() {
    progress.incrementAndGet();
  }

  /** All of a file is there, but it could not be checked. */
  void undecided(PartialFile file) {
    if (cache == null && open.get(nameOf(file)) == file) {
      Hydrator.add(this);
    }
  }

  /** A file is whole, or damaged. */
  void decided(PartialFile file, IOException failure) {
    if (failure != null) {
      // Of a file that the loaded version does not have nobody reads.
      if (open.get(nameOf(file)) == file) {
        damage = failure;
      }
    } else {
      boolean wasOpen = open.remove(nameOf(file), file);
      retired.remove(file);
      if (cache != null && wasOpen) {
        staying.isWhole(nameOf(file), file.length());
      }
    }
  }

  /**
   * The files of another version are in place. Forgets the partial ones that are nowhere any more.
   *
   * @param directory in which RocksDB opens the version
   * @param root below which the store has all that it has on this disk
   */
  public void loaded(Path directory, Path root) throws IOException {
    synchronized (holds) {
      this.directory = directory;
      this.root = root;
      isLoading = false;
    }
    damage = null;
    if (!open.isEmpty() || !retired.isEmpty()) {
      Map<String, PartialFile> inPlace = PartialFiles.in(directory);
      Set<PartialFile> again = new HashSet<>(inPlace.values());
      // Not for a moment are those retired that stay: another thread may be forgetting what has no name.
      open.values().stream().filter(file -> !again.contains(file)).forEach(retired::add);
      retired.removeAll(again);
      open.keySet().retainAll(inPlace.keySet());
      open.putAll(inPlace);
      // Files that became whole since they were looked for.
      open.values().removeIf(PartialFile::isWhole);
      retired.forgetNameless(root);
    }
    if (cache != null) {
      staying.loaded(directory);
    }
    touchedNanos = System.nanoTime();
    if (needsHydrator()) {
      Hydrator.add(this);
    }
  }

  // ---- a cache

  /** RocksDB has made a file. */
  public void created(String name, long bytes) {
    if (cache != null && name.endsWith(StayingFiles.SST)) {
      staying.created(name, bytes);
    }
  }

  /** RocksDB has deleted a file. */
  public void deleted(String name) {
    if (cache != null) {
      staying.remove(name);
    }
    PartialFile file = open.remove(name);
    if (file != null) {
      // A snapshot that waits for its upload may still have a link to it. Until that is known, it takes its room.
      file.deleted();
      retired.add(file);
    }
  }

  /** RocksDB has read a part of a file. */
  public void wasRead(String name, long from, long to) {
    PartialFile file = open.get(name);
    if (file != null) {
      file.wasRead(from, to);
    }
  }

  /**
   * An SST of the store is durable in the checkpoint, so parts of it may go.
   *
   * @param store its directory in the checkpoint, with its real name; qualified
   * @param name as RocksDB has it
   * @param identity what tells the file from all others, {@link PartialFiles#keyOf}
   * @param origin makes what reads it from the checkpoint, for a store
   */
  static void durable(
      org.apache.hadoop.fs.Path store, String name, Object identity, Function<LazyFiles, PartialFile.Origin> origin)
      throws IOException {
    for (LazyFiles files : CACHED) {
      if (files.store.equals(store)) {
        files.durable(name, identity, origin);
      }
    }
  }

  void durable(String name, Object identity, Function<LazyFiles, PartialFile.Origin> origin) throws IOException {
    int load;
    synchronized (holds) {
      load = loads;
    }
    Path path = directory == null ? null : directory.resolve(name);
    if (path == null || !identity.equals(PartialFiles.keyIfThere(path))) {
      return;
    }
    // A name of its own, by which the file is there whatever RocksDB does meanwhile.
    Path link = root.resolve("durable-" + UUID.randomUUID());
    try {
      Files.createLink(link, path);
      if (identity.equals(PartialFiles.keyOf(link)) && PartialFiles.at(link) == null) {
        boolean isSmall = Files.size(link) < Math.min(PartialFile.smallest, SMALLEST_MADE);
        long dataEnd = isSmall ? TableEnd.UNKNOWN : TableEnd.of(link);
        if (dataEnd != TableEnd.UNKNOWN) {
          adopt(PartialFile.ofWhole(path, link, origin.apply(this), cache), dataEnd, load);
        } else if (!isTooLate(load)) {
          staying.becameDurable(name);
        }
      }
    } catch (NoSuchFileException e) {
      // RocksDB has just deleted it, or the store is closed.
    } finally {
      Files.deleteIfExists(link);
    }
    PartialFile adopted = open.get(name);
    if (adopted != null && identity.equals(adopted.key()) && !identity.equals(PartialFiles.keyIfThere(path))) {
      deleted(name);
    }
  }

  private void adopt(PartialFile file, long dataEnd, int load) throws IOException {
    String name = nameOf(file);
    file.keepFrom(dataEnd);
    boolean isTooLate;
    synchronized (holds) {
      isTooLate = isTooLate(load);
      if (!isTooLate) {
        // A compaction may be reading it.
        holds.stream().filter(hold -> hold.which.test(name)).forEach(hold -> hold.add(file));
        add(file);
      }
    }
    if (isTooLate) {
      file.close();
    } else {
      staying.remove(name);
      cache.mayGo();
    }
  }

  /** Whether another load may have put other files there. */
  private boolean isTooLate(int load) {
    synchronized (holds) {
      return isClosed || isLoading || load != loads;
    }
  }

  /**
   * Waits until what others have made is in the checkpoint, if there is no room for so many bytes more otherwise. It
   * does not wait for long, because nothing says that it will be there soon; nor where there is no bound.
   *
   * @param isCancelled asked again and again
   */
  public void awaitRoom(long bytes, BooleanSupplier isCancelled) throws InterruptedException {
    if (cache == null) {
      return;
    }
    long until = System.nanoTime() + MOST_WAIT_NANOS;
    while (cache.own() + bytes > cache.limit()
        && cache.own() > 0
        && System.nanoTime() - until < 0
        && !isCancelled.getAsBoolean()) {
      TimeUnit.MILLISECONDS.sleep(50);
    }
  }

  /**
   * Has all of some files here, and lets nothing of them go.
   *
   * @param isCancelled asked before each request
   * @param arrived called after each request
   * @return to be closed when they are not needed any more
   */
  public Hold hold(Collection<String> names, BooleanSupplier isCancelled, Runnable arrived) throws IOException {
    return hold(Set.copyOf(names)::contains, isCancelled, arrived);
  }

  /** Has all files here, as {@link #hold} does. */
  public Hold holdAll() throws IOException {
    return hold(name -> true, () -> false, () -> {});
  }

  private Hold hold(Predicate<String> which, BooleanSupplier isCancelled, Runnable arrived) throws IOException {
    check();
    Hold hold = new Hold(which);
    List<PartialFile> files;
    synchronized (holds) {
      holds.add(hold);
      open.values().stream().filter(file -> which.test(nameOf(file))).forEach(hold::add);
      files = List.copyOf(hold.files);
    }
    boolean done = false;
    try {
      List<Callable<Void>> shares = new ArrayList<>();
      hold.fetched = files.stream().mapToLong(PartialFile::missing).sum();
      for (PartialFile file : files) {
        for (Callable<Void> share : shares(file, 0, file.length())) {
          shares.add(
              () -> {
                if (!isCancelled.getAsBoolean()) {
                  unlessDeleted(file, share);
                  arrived.run();
                }
                return null;
              });
        }
      }
      inParallel(shares, Parallel.READS);
      if (cache != null) {
        hold.room = files.stream().mapToLong(PartialFile::length).sum();
        cache.take(hold.room);
      }
      done = true;
    } finally {
      if (!done) {
        hold.close();
      }
    }
    return hold;
  }

  private void unlessDeleted(PartialFile file, Callable<Void> share) throws Exception {
    try {
      share.call();
    } catch (IOException e) {
      if (!isDeleted(nameOf(file))) {
        throw e;
      }
    }
  }

  /** Files that are all here as long as this is open, also those that become durable meanwhile. */
  public final class Hold implements AutoCloseable {
    private final Predicate<String> which;
    private final List<PartialFile> files = new ArrayList<>();

    /** What is made of the files takes as much room again. */
    private long room;

    private long fetched;

    private Hold(Predicate<String> which) {
      this.which = which;
    }

    /** Whether all of the files is here: it is, unless it was cancelled. */
    public boolean isWhole() {
      synchronized (holds) {
        return files.stream().allMatch(file -> file.missing() == 0);
      }
    }

    /** How many bytes had to be fetched. */
    public long fetched() {
      return fetched;
    }

    private void add(PartialFile file) {
      file.hold();
      files.add(file);
    }

    @Override
    public void close() {
      synchronized (holds) {
        holds.remove(this);
        files.forEach(PartialFile::letGo);
        files.clear();
        if (cache != null) {
          cache.release(room);
          room = 0;
        }
      }
    }
  }

  /** How many deleted files are still held open, because they may have another name. */
  int retired() {
    return retired.count();
  }

  /** Forgets deleted files that have no name any more. */
  public void tidy() throws IOException {
    if (!retired.isEmpty() && root != null) {
      retired.forgetNameless(root);
    }
  }

  // ---- what is missing

  /** Whether there is anything to do that nobody waits for. */
  boolean needsHydrator() {
    return damage == null && open.values().stream().anyMatch(this::isForHydrator);
  }

  /** What nobody asks for is fetched only where that is wanted; what is there has to be checked in any case. */
  boolean isForHydrator(PartialFile file) {
    return hydrates || file.isWanted() || file.isUnchecked();
  }

  // ---- the background

  /** The files that are not whole, what was touched last first. */
  List<PartialFile> toHydrate() {
    Collection<PartialFile> files = damage == null ? open.values() : List.of();
    record Use(PartialFile file, long touchedNanos) {}
    // Of a moment: they are touched while they are compared.
    return files.stream()
        .map(file -> new Use(file, file.touchedNanos()))
        .sorted(Comparator.comparingLong(Use::touchedNanos).reversed())
        .map(Use::file)
        .toList();
  }

  /** The store is closed, and Spark has deleted its files. */
  @Override
  public void close() {
    CACHED.remove(this);
    Hydrator.remove(this);
    synchronized (holds) {
      isClosed = true;
    }
    List<PartialFile> all = new ArrayList<>(open.values());
    open.clear();
    all.addAll(retired.takeAll());
    for (PartialFile file : all) {
      try {
        file.close();
      } catch (IOException e) {
        // It is deleted, and nobody asks for it any more.
      }
    }
    if (cache != null) {
      staying.close();
      cache.closed(this);
    }
  }
}
