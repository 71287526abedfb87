package io.pyspark.statestore.tables;

import io.pyspark.statestore.write.LocalSpace;
import io.pyspark.statestore.write.Payload;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/** A copy of a local SST with holes, as a lazy load makes it, for tests that have no checkpoint. */
public final class HoleySst extends LocalOrigin {
  private static final String NAME = "holey-sst";
  private static final int PATIENCE_SECONDS = 60;

  private final byte[] whole;
  private int requests;
  private long fetched;
  private long requestMs;

  /** Before requests for the whole file, and before those for less; null where there is none. */
  private volatile Gate large;

  private volatile Gate small;

  /** Before what arrives next is counted; null where there is none. */
  private volatile Gate arrival;

  /** What the next check throws; null where it finds nothing wrong. */
  private volatile Throwable failure;

  private HoleySst(byte[] whole, LazyFiles files) {
    super(files);
    this.whole = whole;
  }

  /** Copies the end of an SST and some of its chunks; returns how many bytes are left out. */
  public static long copy(Path from, Path to, LazyFiles files, Random random) throws IOException {
    return copy(from, to, files, random.nextInt(4), random);
  }

  /** Copies the end of an SST and so many quarters of its chunks; returns how many bytes are left out. */
  public static long copy(Path from, Path to, LazyFiles files, int density, Random random) throws IOException {
    byte[] whole = Files.readAllBytes(from);
    TableEnd.Answer answer = TableEnd.find(whole, whole.length);
    if (!answer.isKnown() || answer.from() == TableEnd.UNKNOWN) {
      throw new IllegalStateException(from + " is no SST");
    }
    HoleySst origin = new HoleySst(whole, files);
    PartialFile file = new PartialFile(to, whole.length, origin, files.cache());
    file.keepFrom(answer.from());
    file.need(answer.from(), whole.length);
    for (long at = 0; density > 0 && at < whole.length; at += PartialFile.chunkBytes) {
      if (random.nextInt(4) < density) {
        file.need(at, at + 1);
      }
    }
    long missing = file.missing();
    if (missing > 0 || files.isCached()) {
      files.add(file);
    }
    return missing;
  }

  /** The files of a store of which the disk has no more than there is room for, with a cache of its own. */
  public static LazyFiles cached(long limit) {
    LocalCache cache = new LocalCache(new HolePuncher());
    LazyFiles made = new LazyFiles(false, 0, cache, new org.apache.hadoop.fs.Path("/nowhere"));
    cache.opened(made, limit);
    return made;
  }

  /** With which a store fetches several parts at a time. */
  public static void fetchWith(LazyFiles files, ExecutorService threads) {
    files.loading(threads);
  }

  /** Gives back so many bytes of a store's cache. */
  public static void giveBack(LazyFiles files, long bytes) {
    files.cache().giveBack(bytes);
  }

  private static volatile boolean goes;

  /** Whether parts of all stores of the process go all the time, however much room there is. */
  public static void goAllTheTime(boolean now) {
    boolean before = goes;
    goes = now;
    if (now && !before) {
      Thread thread = new Thread(HoleySst::goAllTheTime, "goes-all-the-time");
      thread.setDaemon(true);
      thread.start();
    }
  }

  private static void goAllTheTime() {
    Random random = new Random();
    while (goes) {
      LocalCache.ofProcess().giveBack(random.nextInt(64 << 10));
      Thread.onSpinWait();
    }
  }

  /** How many deleted files of a store are still held open. */
  public static int retired(LazyFiles files) {
    return files.retired();
  }

  /** Bytes that a store's cache counts on the disk. */
  public static long used(LazyFiles files) {
    return files.cache().used();
  }

  /** Bytes that a store's cache has given back. */
  public static long givenBack(LazyFiles files) {
    return files.cache().givenBack();
  }

  /** From now on parts of so many bytes go, and files of so many are there in parts. */
  public static void pages(int bytes, long smallest) {
    PartialFile.pageBytes = bytes;
    PartialFile.smallest = smallest;
  }

  /** All SSTs of a database are durable from now on, so that parts of them may go. */
  public static void allDurable(Path directory, Path links, LazyFiles files) throws IOException {
    try (DirectoryStream<Path> all = Files.newDirectoryStream(directory, "*.sst")) {
      for (Path sst : all) {
        Path link = links.resolve(UUID.randomUUID().toString());
        try {
          Files.createLink(link, sst);
        } catch (NoSuchFileException e) {
          continue; // compacted away
        }
        if (PartialFiles.at(link) == null) {
          byte[] whole = Files.readAllBytes(link);
          // A compaction may just be writing it. No snapshot has such a file.
          if (TableEnd.find(whole, whole.length).from() > 0) {
            Object identity = PartialFiles.keyOf(link);
            files.durable(sst.getFileName().toString(), identity, each -> new HoleySst(whole, each));
          }
        }
        Files.delete(link);
      }
    }
  }

  /**
   * Parts of a file may go from some time on. Somebody reads another name of it, who has pinned it before; then all
   * goes that may.
   *
   * @return whether all bytes are there while it is pinned, and afterwards
   */
  public static boolean[] pinned(Path directory, int length, Random random) throws IOException {
    LazyFiles files = cached(length);
    HoleySst origin = of(length, files, random);
    Path path = Files.write(directory.resolve("file.sst"), origin.whole);
    Path link = Files.createLink(directory.resolve("link"), path);
    boolean[] found = new boolean[2];
    try {
      PartialFiles.Pin pin = PartialFiles.pin(link);
      origin.durable(path);
      files.cache().giveBack(length);
      found[0] = origin.isIn(link);
      pin.close();
      files.cache().giveBack(length);
      found[1] = origin.isIn(link);
    } finally {
      files.close();
    }
    return found;
  }

  /**
   * RocksDB deletes a file that a snapshot which is being taken has a link to, in the middle of a compaction.
   *
   * @return whether the link has its length all the time, and its bytes; how many bytes are counted as long as there is
   *     a link, and afterwards
   */
  public static long[] deletedWhileLinked(Path directory, int length, Random random) throws Exception {
    LazyFiles files = cached(2L * length);
    HoleySst origin = of(length, files, random);
    Path path = Files.write(directory.resolve("file.sst"), origin.whole);
    Path link = Files.createLink(directory.resolve("link"), path);
    files.loaded(directory, directory);
    AtomicBoolean isOver = new AtomicBoolean();
    FutureTask<Integer> looks =
        started(
            () -> {
              int wrong = 0;
              while (!isOver.get()) {
                wrong += Files.size(link) == length ? 0 : 1;
              }
              return wrong;
            });
    try {
      origin.durable(path);
      LazyFiles.Hold hold = files.hold(List.of("file.sst"), () -> false, () -> {});
      Files.delete(path);
      files.deleted("file.sst");
      hold.close();
      files.cache().giveBack(length);
      files.tidy();
      long linked = used(files);
      isOver.set(true);
      boolean isRight = looks.get() == 0 && origin.isIn(link);
      Files.delete(link);
      files.tidy();
      return new long[] {isRight ? 1 : 0, linked, used(files)};
    } finally {
      isOver.set(true);
      files.close();
    }
  }

  /** A file that is whole is durable from now on. */
  private PartialFile durable(Path path) throws IOException {
    Path link = Files.createLink(path.resolveSibling(UUID.randomUUID().toString()), path);
    PartialFile file = PartialFile.ofWhole(path, link, this, files.cache());
    files.add(file);
    Files.delete(link);
    return file;
  }

  private boolean isIn(Path path) throws IOException {
    return Arrays.equals(Files.readAllBytes(path), whole);
  }

  /**
   * A file is uploaded before its snapshot, and becomes durable under another name meanwhile; then all goes that may.
   *
   * @return whether all bytes are there while it is uploaded, and afterwards
   */
  public static boolean[] uploaded(Path directory, int length, Random random) throws IOException {
    LazyFiles files = cached(length);
    HoleySst origin = of(length, files, random);
    Path path = Files.write(directory.resolve("file.sst"), origin.whole);
    EarlyFile early = new EarlyFile(null, path, "0/0/file.sst", PartialFiles.keyOf(path), length);
    Path read = early.keep(new LocalSpace(() -> directory)).file();
    boolean[] found = new boolean[2];
    try {
      origin.durable(path);
      files.cache().giveBack(length);
      found[0] = origin.isIn(read);
      early.wasRead();
      files.cache().giveBack(length);
      found[1] = origin.isIn(read);
    } finally {
      files.close();
    }
    return found;
  }

  /**
   * A file of which parts have gone is staged for a snapshot, and its store is closed before that is written.
   *
   * @param isAgain whether it was staged for another one before, became whole for that, and lost parts again
   * @return whether it is refused then; whether it is known as long as it is staged, and afterwards
   */
  public static boolean[] closedWhileStaged(Path directory, int length, boolean isAgain, Random random)
      throws IOException {
    LazyFiles files = cached(length);
    HoleySst origin = of(length, files, random);
    Path path = Files.write(directory.resolve("file.sst"), origin.whole);
    PartialFile file = origin.durable(path);
    StagedTable first = staged(file);
    StagedTable table = staged(file);
    if (isAgain) {
      first.complete();
      first.close();
      file = origin.durable(path);
    }
    giveBack(files, length);
    if (file.missing() == 0) {
      throw new IllegalStateException("nothing has gone");
    }
    Files.delete(path);
    files.close();
    boolean isRefused = false;
    try {
      table.complete();
    } catch (IOException e) {
      isRefused = true;
    }
    boolean isKnown = PartialFiles.allKeys().contains(file.key());
    table.close();
    first.close();
    return new boolean[] {isRefused, isKnown, PartialFiles.allKeys().contains(file.key())};
  }

  private static StagedTable staged(PartialFile file) throws IOException {
    Path kept = Files.createLink(file.path().resolveSibling(UUID.randomUUID().toString()), file.path());
    return StagedTable.ofParts(Payload.ofFile(kept), file.key(), new PartialFiles.Named(file.key()));
  }

  /**
   * A read of a row has met a hole, which the background is filling when the read asks for it.
   *
   * @return whether the read is told that it was a hole
   */
  public static boolean filledMeanwhile(Path directory, int length, Random random) throws Exception {
    LazyFiles store = new LazyFiles(false, 0);
    HoleySst origin = of(length, store, random);
    PartialFile file = new PartialFile(directory.resolve("file.sst"), length, origin);
    store.add(file);
    try {
      Gate gate = new Gate();
      origin.arrival = gate;
      long before = store.progress();
      FutureTask<Integer> background = started(() -> file.fetchSome(length));
      gate.arrived.await();
      boolean isHole = store.supply("file.sst", length / 2, 4 << 10, -1, before, new Object());
      gate.open.countDown();
      background.get();
      return isHole;
    } finally {
      store.close();
    }
  }

  /**
   * A task is killed while all that is missing is fetched, of so many files, and two threads do that.
   *
   * @return how many files are whole when nobody does anything any more
   */
  public static int interrupted(Path directory, int length, int count, Random random) throws Exception {
    LazyFiles store = new LazyFiles(false, 0);
    ExecutorService threads = Executors.newFixedThreadPool(2);
    try {
      store.loading(threads);
      Gate gate = new Gate();
      for (int i = 0; i < count; i++) {
        HoleySst origin = of(length, store, random);
        origin.large = gate;
        store.add(new PartialFile(directory.resolve(i + ".sst"), length, origin));
      }
      List<PartialFile> files = store.toHydrate();
      CountDownLatch isOver = new CountDownLatch(1);
      Thread task =
          new Thread(
              () -> {
                try {
                  store.awaitWhole();
                } catch (IOException e) {
                  isOver.countDown();
                }
              },
              NAME);
      task.start();
      gate.arrived.await();
      task.interrupt();
      if (!isOver.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
        throw new IllegalStateException("it goes on");
      }
      gate.open.countDown();
      threads.shutdown();
      threads.awaitTermination(PATIENCE_SECONDS, TimeUnit.SECONDS);
      return (int) files.stream().filter(PartialFile::isWhole).count();
    } finally {
      threads.shutdownNow();
      store.close();
    }
  }

  /**
   * Gives back all of a file where that cannot be done.
   *
   * @return how many bytes are missing then
   */
  public static long withoutPuncher(Path directory, int length, Random random) throws IOException {
    LocalCache cache = new LocalCache(new HolePuncher(List.of(directory.resolve("no-python").toString())));
    LazyFiles files = new LazyFiles(false, 0, cache, new org.apache.hadoop.fs.Path("/nowhere"));
    cache.opened(files, length);
    HoleySst origin = of(length, files, random);
    Path path = Files.write(directory.resolve("file.sst"), origin.whole);
    try {
      PartialFile file = origin.durable(path);
      for (int i = 0; i < 100; i++) {
        cache.giveBack(length);
      }
      return file.missing();
    } finally {
      files.close();
    }
  }

  /**
   * Loads files again and again, half of them new ones, while another thread forgets those that have no name any more.
   *
   * @return how many files with holes nobody knew of after a load
   */
  public static int forgotten(Path root, int count, int loads, Random random) throws Exception {
    Path directory = Files.createDirectories(root.resolve("open"));
    Path waiting = Files.createDirectories(root.resolve("waiting"));
    LazyFiles files = new LazyFiles(false, 0);
    FutureTask<Integer> forgetting = null;
    int found = 0;
    try {
      // What a snapshot still has, and no later version, so that there is something to look for.
      partial(directory.resolve("old.sst"), files, random);
      Files.createLink(waiting.resolve("old.sst"), directory.resolve("old.sst"));
      files.loaded(directory, root);
      Files.delete(directory.resolve("old.sst"));
      AtomicBoolean isOver = new AtomicBoolean();
      forgetting =
          started(
              () -> {
                while (!isOver.get()) {
                  files.tidy();
                }
                return 0;
              });
      for (int load = 0; load < loads; load++) {
        files.loadBegins();
        for (int i = 0; i < count; i++) {
          Path path = directory.resolve(i + ".sst");
          if (i % 2 == 0 || PartialFiles.keyIfThere(path) == null) {
            Files.deleteIfExists(path);
            partial(path, files, random);
          }
        }
        files.loaded(directory, root);
        for (int i = 0; i < count; i++) {
          found += PartialFiles.at(directory.resolve(i + ".sst")) == null ? 1 : 0;
        }
      }
      isOver.set(true);
      forgetting.get();
      return found;
    } finally {
      files.close();
    }
  }

  private static void partial(Path path, LazyFiles files, Random random) throws IOException {
    HoleySst origin = of(1 << 12, files, random);
    files.add(new PartialFile(path, 1 << 12, origin));
  }

  /**
   * Has two blocks of each file fetched that lie near each other, and before that what takes three quarters of the
   * room.
   *
   * @param limit bytes that may be on the disk
   * @return how many bytes come for each file
   */
  public static long[] neighbours(Path directory, int length, int count, long limit, Random random) throws IOException {
    LazyFiles files = cached(limit);
    try {
      List<HoleySst> origins = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        HoleySst origin = of(length, files, random);
        origin.requestMs = 2;
        files.add(new PartialFile(directory.resolve(i + ".sst"), length, origin, files.cache()));
        origins.add(origin);
      }
      files.cache().count(limit * 3 / 4);
      long[] fetched = new long[count];
      for (int i = 0; i < count; i++) {
        List<LazyFiles.Part> parts =
            List.of(
                new LazyFiles.Part(i + ".sst", 0, 4 << 10), new LazyFiles.Part(i + ".sst", length - (4 << 10), length));
        files.fetch(parts, 1, true, () -> false);
        fetched[i] = origins.get(i).fetched;
      }
      return fetched;
    } finally {
      files.close();
    }
  }

  /** Bytes that are missing of the files that a database reads. */
  public static long missing(LazyFiles files) {
    return files.toHydrate().stream().mapToLong(PartialFile::missing).sum();
  }

  /** Where the data of a file ends, as its last bytes say, of which more are asked for as long as they do not. */
  public static long dataEnd(String path, int bytes) throws IOException {
    byte[] whole = Files.readAllBytes(Path.of(path));
    long from = Math.max(0, whole.length - bytes);
    while (true) {
      TableEnd.Answer answer = TableEnd.find(Arrays.copyOfRange(whole, (int) from, whole.length), whole.length);
      if (answer.isKnown()) {
        return answer.from();
      }
      if (answer.from() >= from) {
        throw new IllegalStateException("asks for what it has");
      }
      from = answer.from();
    }
  }

  /**
   * Reads blocks of 4 KB of a file that has nothing yet, as reads of single rows do.
   *
   * @param requestMs what each request takes
   * @param wholeBytesPerSecond how fast the file is thought to come whole
   * @return the requests that it took, the bytes that were fetched, and those that are missing now
   */
  public static long[] blocks(Path path, int length, int reads, long requestMs, long wholeBytesPerSecond, Random random)
      throws IOException {
    long inProduction = PartialFile.wholeBytesPerSecond;
    PartialFile.wholeBytesPerSecond = wholeBytesPerSecond;
    try {
      return blocks(path, length, reads, requestMs, random);
    } finally {
      PartialFile.wholeBytesPerSecond = inProduction;
    }
  }

  /** Holds requests back. */
  private static final class Gate {
    private final CountDownLatch arrived = new CountDownLatch(1);
    private final CountDownLatch open = new CountDownLatch(1);

    private void pass() throws IOException {
      arrived.countDown();
      try {
        open.await();
      } catch (InterruptedException e) {
        throw new InterruptedIOException();
      }
    }

    private void passUninterrupted() {
      try {
        pass();
      } catch (IOException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  /**
   * Reads a block of a row, and then a whole range, of what the background is just fetching and does not get.
   *
   * @return whether the block came, and whether the range did; then the background goes on
   */
  public static boolean[] besideBackground(Path path, int length, Random random) throws Exception {
    HoleySst origin = of(length, random);
    PartialFile file = new PartialFile(path, length, origin);
    FutureTask<Integer> background = origin.heldBackground(file);
    FutureTask<Integer> row = row(file, length / 2);
    boolean rowCame = isDone(row, PATIENCE_SECONDS);
    FutureTask<Integer> scan =
        started(
            () -> {
              file.need(0, length);
              return 0;
            });
    boolean scanCame = isDone(scan, 1);
    origin.large.open.countDown();
    background.get();
    row.get();
    scan.get();
    origin.requireWhole(file, path);
    return new boolean[] {rowCame, scanCame};
  }

  /** Reads a block of a row beside the background, which completes the file before the block comes. */
  public static void behindBackground(Path path, int length, Random random) throws Exception {
    HoleySst origin = of(length, random);
    PartialFile file = new PartialFile(path, length, origin);
    FutureTask<Integer> background = origin.heldBackground(file);
    origin.small = new Gate();
    FutureTask<Integer> row = row(file, length / 2);
    origin.small.arrived.await();
    origin.large.open.countDown();
    background.get();
    origin.requireWhole(file, path);
    origin.small.open.countDown();
    row.get();
    origin.requireWhole(file, path);
  }

  /**
   * Reads all of a file, whose check fails once for a reason that says nothing of it.
   *
   * @param hydrates whether its store has the rest fetched in the background
   * @param failure what the check throws
   * @return whether the file is whole some time after, with nobody asking for it
   */
  public static boolean checkedAgain(Path path, int length, boolean hydrates, Throwable failure, Random random)
      throws Exception {
    LazyFiles store = new LazyFiles(hydrates, 0);
    HoleySst origin = of(length, store, random);
    origin.failure = failure;
    PartialFile file = new PartialFile(path, length, origin);
    store.add(file);
    try {
      file.need(0, length);
      throw new IllegalStateException("the check did not fail");
    } catch (IOException | OutOfMemoryError e) {
      if (e != failure) {
        throw e;
      }
    }
    boolean isWhole = becomesWhole(store, () -> {});
    store.close();
    if (isWhole) {
      origin.requireWhole(file, path);
    }
    return isWhole;
  }

  /**
   * Has a file completed in the background, while nothing that was asked of others is answered.
   *
   * @param held how many others, each of a store of its own
   * @return whether the file is whole some time after
   */
  public static boolean besideOthersThatHang(Path directory, int length, int held, Random random) throws Exception {
    long inProduction = Hydrator.stuckNanos;
    Hydrator.stuckNanos = TimeUnit.MILLISECONDS.toNanos(100);
    List<HoleySst> hanging = new ArrayList<>();
    try {
      for (int i = 0; i < held; i++) {
        HoleySst origin = inBackground(directory.resolve("held-" + i), length, new Gate(), random);
        hanging.add(origin);
      }
      HoleySst origin = inBackground(directory.resolve("file"), length, null, random);
      boolean isWhole = becomesWhole(origin.files, Hydrator::goOn);
      origin.files.close();
      for (HoleySst each : hanging) {
        each.large.open.countDown();
        isWhole &= becomesWhole(each.files, Hydrator::goOn);
        each.files.close();
      }
      return isWhole;
    } finally {
      hanging.forEach(each -> each.large.open.countDown());
      Hydrator.stuckNanos = inProduction;
    }
  }

  /** A file whose requests pass a gate, and that nobody reads. */
  private static HoleySst inBackground(Path path, int length, Gate gate, Random random) throws IOException {
    HoleySst origin = of(length, new LazyFiles(true, 0), random);
    origin.large = gate;
    origin.small = gate;
    origin.files.add(new PartialFile(path, length, origin));
    Hydrator.add(origin.files);
    return origin;
  }

  /** Whether a store is whole after some time at the latest. */
  private static boolean becomesWhole(LazyFiles store, Runnable meanwhile) throws InterruptedException {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (!store.isWhole() && System.nanoTime() - until < 0) {
      Thread.sleep(10);
      meanwhile.run();
    }
    return store.isWhole();
  }

  private static HoleySst of(int length, Random random) {
    return of(length, new LazyFiles(false, 0), random);
  }

  private static HoleySst of(int length, LazyFiles store, Random random) {
    HoleySst origin = new HoleySst(new byte[length], store);
    random.nextBytes(origin.whole);
    return origin;
  }

  /** The background fetches all of a file, and its request is held back. */
  private FutureTask<Integer> heldBackground(PartialFile file) throws InterruptedException {
    large = new Gate();
    FutureTask<Integer> background = started(() -> file.fetchSome(whole.length));
    large.arrived.await();
    return background;
  }

  private void requireWhole(PartialFile file, Path path) throws IOException {
    if (file.missing() != 0 || !file.isWhole() || !Arrays.equals(Files.readAllBytes(path), whole)) {
      throw new IllegalStateException("not whole");
    }
  }

  private static FutureTask<Integer> row(PartialFile file, int at) {
    return started(
        () -> {
          file.needBlock(at, at + (4 << 10));
          return 0;
        });
  }

  private static FutureTask<Integer> started(Callable<Integer> work) {
    FutureTask<Integer> task = new FutureTask<>(work);
    new Thread(task, NAME).start();
    return task;
  }

  private static boolean isDone(FutureTask<Integer> task, int seconds) throws Exception {
    try {
      task.get(seconds, TimeUnit.SECONDS);
      return true;
    } catch (TimeoutException e) {
      return false;
    }
  }

  private static long[] blocks(Path path, int length, int reads, long requestMs, Random random) throws IOException {
    HoleySst origin = of(length, random);
    origin.requestMs = requestMs;
    PartialFile file = new PartialFile(path, length, origin);
    for (int i = 0; i < reads; i++) {
      int at = random.nextInt(length - (4 << 10));
      file.needBlock(at, at + (4 << 10));
      byte[] found = Files.readAllBytes(path);
      if (!Arrays.equals(found, at, at + (4 << 10), origin.whole, at, at + (4 << 10))) {
        throw new IllegalStateException("a block is not there");
      }
    }
    origin.requestMs = 0;
    long[] cost = {origin.requests, origin.fetched, file.missing()};
    file.awaitWhole();
    if (file.missing() != 0 || !Arrays.equals(Files.readAllBytes(path), origin.whole)) {
      throw new IllegalStateException("not whole");
    }
    return cost;
  }

  @Override
  public void read(long position, byte[] buffer, int length) throws IOException {
    try {
      Thread.sleep(requestMs);
    } catch (InterruptedException e) {
      throw new InterruptedIOException();
    }
    Gate gate = length == whole.length ? large : small;
    if (gate != null) {
      gate.pass();
    }
    requests++;
    fetched += length;
    System.arraycopy(whole, (int) position, buffer, 0, length);
  }

  @Override
  public void arrives() {
    Gate gate = arrival;
    arrival = null;
    if (gate != null) {
      gate.passUninterrupted();
    }
    super.arrives();
  }

  @Override
  public void check(Path file, int crc32c) throws IOException {
    Throwable now = failure;
    failure = null;
    if (now instanceof IOException io) {
      throw io;
    }
    if (now instanceof Error error) {
      throw error;
    }
  }
}
