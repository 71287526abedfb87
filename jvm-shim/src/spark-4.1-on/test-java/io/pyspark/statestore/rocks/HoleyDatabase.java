package io.pyspark.statestore.rocks;

import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.tables.HoleySst;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.CompressionType;
import org.rocksdb.EnvOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.Options;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.Slice;
import org.rocksdb.SstFileWriter;
import org.rocksdb.Status;
import org.rocksdb.StringAppendOperator;
import org.rocksdb.WriteOptions;

/**
 * Compares a database whose files have holes with the same one without: random reads, scans in both directions, and
 * writes in between, as long as there are holes.
 */
public final class HoleyDatabase {
  private static final long AFTER_OPEN_NANOS = Compactor.afterOpenNanos;
  private static final long LOOK_NANOS = Compactor.lookNanos;
  private static final long STUCK_NANOS = Compactor.stuckNanos;

  private static final int KEYS = 400;

  /** So many files of level 0 are compacted. */
  private static final int LEVEL_0 = 3;

  private static final long BACKGROUND_BYTES_PER_SECOND = 1 << 20;

  private static final ExecutorService THREADS = Executors.newCachedThreadPool(Threads.daemons("look-ahead"));

  private final Random random;
  private final List<String> history = new ArrayList<>();
  private final List<Future<?>> fetches = new ArrayList<>();

  private HoleyDatabase(long seed) {
    random = new Random(seed);
  }

  /** Runs one random history; returns how many bytes had been left out. Fails where the two databases differ. */
  public static long run(String directory, long seed, int steps) throws Exception {
    RocksDB.loadLibrary();
    HoleyDatabase test = new HoleyDatabase(seed);
    try {
      return test.run(Path.of(directory), steps);
    } catch (Throwable e) {
      throw new AssertionError("seed " + seed + " after " + test.history, e);
    }
  }

  /**
   * Runs one random history of a database that is compacted although its files have holes. Fails where it differs from
   * one that is whole.
   *
   * @param limit bytes of files that may be on the disk: parts go again all the time; 0 where all that comes stays
   * @return how many bytes have gone, or were left out where none go, and how often it was compacted
   */
  public static long[] runCompacted(String directory, long seed, int steps, long limit) throws Exception {
    RocksDB.loadLibrary();
    HoleyDatabase test = new HoleyDatabase(seed);
    compactAfter(0);
    try {
      long before = Compactor.done();
      long gone = test.runCompacted(Path.of(directory), steps, limit);
      return new long[] {gone, Compactor.done() - before};
    } catch (Throwable e) {
      throw new AssertionError("seed " + seed + " after " + test.history, e);
    } finally {
      compactAsEver();
    }
  }

  private long runCompacted(Path directory, int steps, long limit) throws Exception {
    Path whole = Files.createDirectories(directory.resolve("whole"));
    Path holey = Files.createDirectories(directory.resolve("holey"));
    Path links = Files.createDirectories(directory.resolve("links"));
    long seed = random.nextLong();
    // With the rest fetched meanwhile in one of three, and slowly, as in the other case compaction would have it all.
    LazyFiles files =
        limit == 0 ? new LazyFiles(random.nextInt(3) == 0, BACKGROUND_BYTES_PER_SECOND) : HoleySst.cached(limit);
    AtomicBoolean isOver = new AtomicBoolean();
    try (Options options = options(new Random(seed));
        Options lazily = options(new Random(seed))) {
      // So that there is something to compact while files have holes: where all comes once, they soon have none.
      options.setDisableAutoCompactions(limit == 0);
      try (RocksDB db = RocksDB.open(options, whole.toString())) {
        fill(db);
      }
      long leftOut = copy(whole, holey, sst -> HoleySst.copy(whole.resolve(sst), holey.resolve(sst), files, random));
      lazily.setDisableAutoCompactions(true);
      TableFiles listener = new TableFiles(null, files);
      lazily.setListeners(List.of(listener));
      files.loaded(holey, directory);
      Future<?> taking = THREADS.submit(() -> takeAllTheTime(files, isOver));
      try (RocksDB db = RocksDB.open(options, whole.toString());
          LazyRocksDB lazy = new LazyRocksDB(RocksDB.open(lazily, holey.toString()), files)) {
        lazy.compactWithHoles(lazily, 0);
        for (int part = 0; part < steps; part++) {
          long compactions = Compactor.done();
          lazy.compactIfDue();
          if (limit == 0 && part == 0 && random.nextBoolean()) {
            awaitCompaction(lazy, compactions);
          }
          compare(db, lazy, files, 20);
          lazy.compactWhenWhole();
          if (limit > 0 && random.nextInt(3) == 0) {
            history.add("durable");
            HoleySst.allDurable(holey, links, files);
          }
        }
        same(scan(db.newIterator()), scan(lazy.newIterator()), "the end");
        if (random.nextBoolean()) {
          lazy.compactRange();
          same(scan(db.newIterator()), scan(lazy.newIterator()), "compaction");
          if (limit > 0) {
            awaitForgotten(lazy, files);
          }
        }
      } finally {
        isOver.set(true);
        taking.get();
        files.close();
        for (Future<?> each : fetches) {
          each.get();
        }
        listener.close();
      }
      if (limit == 0) {
        return leftOut;
      }
      // A compaction that was given up lets go of its files a moment later.
      long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
      while (HoleySst.used(files) != 0 && System.nanoTime() - until < 0) {
        Thread.sleep(1);
      }
      same(0L, HoleySst.used(files), "bytes that are counted after the end");
      return HoleySst.givenBack(files);
    } finally {
      delete(directory);
    }
  }

  /**
   * Databases that are opened from now on are not compacted for so long. With no second each operation looks whether
   * there is something to compact.
   */
  public static void compactAfter(int seconds) {
    Compactor.afterOpenNanos = TimeUnit.SECONDS.toNanos(seconds);
    Compactor.lookNanos = TimeUnit.SECONDS.toNanos(seconds == 0 ? 0 : 1);
    Compactor.FREE.set(System.nanoTime());
  }

  /** A compaction that gets nothing for so long is not waited for. */
  public static void stuckAfter(int seconds) {
    Compactor.stuckNanos = TimeUnit.SECONDS.toNanos(seconds);
  }

  /** Takes back what was said about when databases are compacted. */
  public static void compactAsEver() {
    Compactor.afterOpenNanos = AFTER_OPEN_NANOS;
    Compactor.lookNanos = LOOK_NANOS;
    Compactor.stuckNanos = STUCK_NANOS;
  }

  /** How many compactions of files with holes this process has done. */
  public static long compactions() {
    return Compactor.done();
  }

  /** Waits for a compaction, where level 0 has enough files. Else reads would fetch all before it begins. */
  private static void awaitCompaction(LazyRocksDB lazy, long before) throws RocksDBException, InterruptedException {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (Integer.parseInt(lazy.getProperty("rocksdb.num-files-at-level0")) >= LEVEL_0
        && Compactor.done() == before
        && System.nanoTime() - until < 0) {
      lazy.compactIfDue();
      Thread.sleep(1);
    }
  }

  /** Files that RocksDB has deleted are not held open for ever. */
  private static void awaitForgotten(LazyRocksDB lazy, LazyFiles files) throws InterruptedException {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (HoleySst.retired(files) > 0 && System.nanoTime() - until < 0) {
      lazy.compactIfDue();
      Thread.sleep(1);
    }
    same(0, HoleySst.retired(files), "deleted files that are open");
  }

  private static void takeAllTheTime(LazyFiles files, AtomicBoolean isOver) {
    Random random = new Random();
    while (files.isCached() && !isOver.get()) {
      HoleySst.giveBack(files, random.nextInt(64 << 10));
      Thread.onSpinWait();
    }
  }

  /**
   * Reads single rows of a database that has only the ends of its files; returns what was missing before, and after.
   */
  public static long[] gets(String directory, int rows, int valueBytes, int gets) throws Exception {
    RocksDB.loadLibrary();
    Path whole = Files.createDirectories(Path.of(directory, "whole"));
    Path holey = Files.createDirectories(Path.of(directory, "holey"));
    Random random = new Random(7);
    // Two, as a block that the one has read is found in the cache by the other.
    try (Options options = new Options().setCreateIfMissing(true);
        Options lazily = new Options().setDisableAutoCompactions(true);
        LazyFiles files = new LazyFiles(false, 0)) {
      write(whole, options, rows, valueBytes, random);
      long before = copy(whole, holey, sst -> HoleySst.copy(whole.resolve(sst), holey.resolve(sst), files, 0, random));
      try (RocksDB db = RocksDB.open(options, whole.toString());
          LazyRocksDB lazy = new LazyRocksDB(RocksDB.open(lazily, holey.toString()), files)) {
        for (int i = 0; i < gets; i++) {
          byte[] key = key(random.nextInt(rows));
          same(Arrays.hashCode(db.get(key)), Arrays.hashCode(lazy.get(key)), "get");
        }
      }
      return new long[] {before, HoleySst.missing(files)};
    }
  }

  /**
   * Looks ahead for random rows of a database that has only the ends of its files, 256 at a time.
   *
   * @return what was missing before, and when nobody fetches any more
   */
  public static long[] asked(String directory, int rows, int valueBytes, int keys) throws Exception {
    RocksDB.loadLibrary();
    Path whole = Files.createDirectories(Path.of(directory, "whole"));
    Path holey = Files.createDirectories(Path.of(directory, "holey"));
    Random random = new Random(7);
    ExecutorService threads = Executors.newCachedThreadPool();
    try (Options options = new Options().setCreateIfMissing(true);
        Options lazily = new Options().setDisableAutoCompactions(true);
        LazyFiles files = new LazyFiles(false, 0)) {
      HoleySst.fetchWith(files, threads);
      write(whole, options, rows, valueBytes, random);
      long before = copy(whole, holey, sst -> HoleySst.copy(whole.resolve(sst), holey.resolve(sst), files, 0, random));
      try (LazyRocksDB lazy = new LazyRocksDB(RocksDB.open(lazily, holey.toString()), files)) {
        ReadAhead ahead = new ReadAhead(() -> lazy, files, null);
        List<Integer> order = IntStream.range(0, rows).boxed().collect(Collectors.toList());
        Collections.shuffle(order, random);
        for (int at = 0; at < keys; at += 256) {
          Iterator<Integer> window = order.subList(at, Math.min(keys, at + 256)).iterator();
          List<AskedKey> of = ahead.keysOf(() -> window.hasNext() && isAsked(lazy, window.next()), 1 << 20);
          ahead.fetch(of, 3, () -> false);
        }
        threads.shutdown();
        threads.awaitTermination(1, TimeUnit.MINUTES);
      }
      return new long[] {before, HoleySst.missing(files)};
    }
  }

  private static boolean isAsked(LazyRocksDB lazy, int row) {
    try {
      lazy.get(key(row));
      return true;
    } catch (RocksDBException e) {
      throw new IllegalStateException(e);
    }
  }

  private static void write(Path directory, Options options, int rows, int valueBytes, Random random)
      throws RocksDBException {
    byte[] value = new byte[valueBytes];
    try (RocksDB db = RocksDB.open(options, directory.toString());
        FlushOptions flush = new FlushOptions()) {
      for (int i = 0; i < rows; i++) {
        random.nextBytes(value);
        db.put(key(i), value);
      }
      db.flush(flush);
    }
  }

  /**
   * Reads a row from a block that is damaged, of a file that is whole and has no name any more.
   *
   * @return how often it is read until the read fails
   */
  public static int reads(String directory) throws IOException {
    int[] reads = {0};
    Status status =
        new Status(Status.Code.Corruption, Status.SubCode.None, "wrong checksum in 000009.sst offset 0 size 100");
    try (LazyFiles files = new LazyFiles(false, 0)) {
      files.loaded(Path.of(directory), Path.of(directory));
      new Holes(files)
          .read(
              () -> {
                if (++reads[0] < 1000) {
                  throw new RocksDBException(status.getState(), status);
                }
                return null;
              });
    } catch (RocksDBException e) {
      return reads[0];
    }
    throw new IllegalStateException("it is read for ever");
  }

  /** Writes one SST. */
  public static void sst(String path, int formatVersion) throws RocksDBException {
    RocksDB.loadLibrary();
    BlockBasedTableConfig table =
        new BlockBasedTableConfig().setFormatVersion(formatVersion).setFilterPolicy(new BloomFilter());
    try (Options options = new Options().setTableFormatConfig(table);
        EnvOptions env = new EnvOptions();
        SstFileWriter writer = new SstFileWriter(env, options)) {
      writer.open(path);
      for (int i = 0; i < 2000; i++) {
        writer.put(String.format("key-%06d", i).getBytes(StandardCharsets.UTF_8), new byte[20]);
      }
      writer.finish();
    }
  }

  private Options options(Random random) {
    BlockBasedTableConfig table =
        new BlockBasedTableConfig()
            .setBlockSize(256)
            .setFilterPolicy(random.nextBoolean() ? new BloomFilter() : null)
            .setFormatVersion(random.nextInt(5) + 2)
            .setNoBlockCache(random.nextBoolean());
    return new Options()
        .setCreateIfMissing(true)
        .setCompressionType(random.nextBoolean() ? CompressionType.LZ4_COMPRESSION : CompressionType.NO_COMPRESSION)
        .setTargetFileSizeBase(8 << 10)
        .setMaxBytesForLevelBase(32 << 10)
        .setLevelZeroFileNumCompactionTrigger(LEVEL_0)
        .setMergeOperator(new StringAppendOperator())
        .setTableFormatConfig(table);
  }

  private long run(Path directory, int steps) throws Exception {
    Path whole = Files.createDirectories(directory.resolve("whole"));
    Path holey = Files.createDirectories(directory.resolve("holey"));
    long seed = random.nextLong();
    // Two of the same kind, as a block that the one database has read is found in the cache by the other.
    try (Options options = options(new Random(seed));
        Options lazily = options(new Random(seed))) {
      try (RocksDB db = RocksDB.open(options, whole.toString())) {
        fill(db);
      }
      LazyFiles files = new LazyFiles(false, 0);
      long leftOut = copy(whole, holey, sst -> HoleySst.copy(whole.resolve(sst), holey.resolve(sst), files, random));
      options.setDisableAutoCompactions(true);
      lazily.setDisableAutoCompactions(true);
      try (RocksDB db = RocksDB.open(options, whole.toString());
          LazyRocksDB lazy = new LazyRocksDB(RocksDB.open(lazily, holey.toString()), files)) {
        compare(db, lazy, files, steps);
        if (random.nextInt(4) == 0) {
          history.add("closed while state is fetched ahead");
          return leftOut;
        }
        files.awaitWhole();
        lazy.compactWhenWhole();
        same(scan(db.newIterator()), scan(lazy.newIterator()), "the end");
        lazy.compactRange();
        same(scan(db.newIterator()), scan(lazy.newIterator()), "compaction");
      } finally {
        files.close();
        for (Future<?> each : fetches) {
          each.get();
        }
      }
      return leftOut;
    } finally {
      delete(directory);
    }
  }

  private void fill(RocksDB db) throws RocksDBException {
    try (WriteOptions write = new WriteOptions().setDisableWAL(true);
        FlushOptions flush = new FlushOptions()) {
      int rounds = 2 + random.nextInt(8);
      for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < KEYS; i++) {
          change(db, write);
        }
        db.flush(flush);
        if (random.nextInt(3) == 0) {
          db.compactRange();
        }
      }
    }
  }

  private String change(RocksDB db, WriteOptions write) throws RocksDBException {
    byte[] key = key();
    switch (random.nextInt(12)) {
      case 0, 1 -> {
        db.delete(write, key);
        return "delete " + text(key);
      }
      case 2, 3, 4 -> {
        db.merge(write, key, value());
        return "merge " + text(key);
      }
      case 5 -> {
        byte[] other = key();
        if (random.nextInt(10) == 0 && Arrays.compare(key, other) < 0) {
          db.deleteRange(write, key, other);
        }
        return "deleteRange " + text(key) + " " + text(other);
      }
      default -> {
        db.put(write, key, value());
        return "put " + text(key);
      }
    }
  }

  /** Copies an SST by its name, and says how many bytes are left out. */
  private interface Copy {
    long of(Path sst) throws Exception;
  }

  private static long copy(Path whole, Path holey, Copy sst) throws Exception {
    long leftOut = 0;
    try (Stream<Path> all = Files.list(whole)) {
      for (Path file : (Iterable<Path>) all::iterator) {
        if (file.toString().endsWith(".sst")) {
          leftOut += sst.of(file.getFileName());
        } else if (!file.endsWith("LOCK")) {
          Files.copy(file, holey.resolve(file.getFileName()));
        }
      }
    }
    return leftOut;
  }

  /** Lets another thread fetch what some reads would need. What they ask for is not read, so nothing is found. */
  private void lookAhead(LazyRocksDB lazy, LazyFiles files, ReadOptions read) {
    history.add("look ahead");
    ReadAhead ahead = new ReadAhead(() -> lazy, files, null);
    int[] left = {5};
    List<AskedKey> keys =
        ahead.keysOf(
            () -> {
              try (RocksIterator rows = lazy.newIterator(read)) {
                same(null, lazy.get(read, key()), "what was only asked for");
                rows.seek(Arrays.copyOf(key(), 7 + random.nextInt(2)));
                same(false, rows.isValid(), "what was only asked for");
              } catch (RocksDBException e) {
                throw new IllegalStateException(e);
              }
              return --left[0] > 0;
            },
            1 << 20);
    same(10, keys.size(), "keys");
    fetches.add(THREADS.submit(() -> fetched(ahead, keys)));
  }

  private static Object fetched(ReadAhead ahead, List<AskedKey> keys) {
    try {
      return ahead.fetch(keys, 3, () -> false);
    } catch (IOException e) {
      // The database was closed meanwhile, and its files with it.
      return e;
    }
  }

  private void compare(RocksDB db, LazyRocksDB lazy, LazyFiles files, int steps) throws Exception {
    try (ReadOptions read = new ReadOptions();
        WriteOptions write = new WriteOptions().setDisableWAL(true);
        FlushOptions flush = new FlushOptions()) {
      for (int step = 0; step < steps; step++) {
        switch (random.nextInt(9)) {
          case 0, 1 -> {
            byte[] key = key();
            history.add("get " + text(key));
            same(text(db.get(read, key)), text(lazy.get(read, key)), "get");
          }
          case 2 -> {
            List<byte[]> keys = Stream.generate(this::key).limit(5).toList();
            history.add("multiGet");
            same(texts(db.multiGetAsList(read, keys)), texts(lazy.multiGetAsList(read, keys)), "multiGet");
          }
          case 3 -> {
            byte[] key = key();
            history.add("exists " + text(key));
            same(db.get(read, key) != null, lazy.keyExists(key), "exists");
          }
          case 4 -> {
            long same = random.nextLong();
            random.setSeed(same);
            history.add(change(db, write));
            random.setSeed(same);
            change(lazy, write);
            if (random.nextInt(4) == 0) {
              history.add("flush");
              db.flush(flush);
              lazy.flush(flush);
            }
          }
          case 5 -> {
            if (random.nextInt(5) == 0) {
              history.add("scan");
              same(scan(db.newIterator()), scan(lazy.newIterator()), "scan");
            }
          }
          case 6 -> bounded(db, lazy);
          case 7 -> lookAhead(lazy, files, read);
          default -> wander(db, lazy, write);
        }
      }
    }
  }

  private void bounded(RocksDB db, LazyRocksDB lazy) throws RocksDBException {
    byte[] from = key();
    byte[] to = key();
    history.add("bounded " + text(from) + " " + text(to));
    try (Slice end = new Slice(to);
        ReadOptions options = new ReadOptions().setIterateUpperBound(end);
        RocksIterator one = db.newIterator(options);
        RocksIterator other = lazy.newIterator(options)) {
      one.seek(from);
      other.seek(from);
      while (one.isValid()) {
        same(at(one), at(other), "bounded");
        one.next();
        other.next();
      }
      same("end", at(other), "bounded");
    }
  }

  /** Moves two iterators in the same way, while the databases are written to. */
  private void wander(RocksDB db, LazyRocksDB lazy, WriteOptions write) throws RocksDBException {
    try (RocksIterator one = db.newIterator();
        RocksIterator other = lazy.newIterator()) {
      List<RocksIterator> both = List.of(one, other);
      int moves = 1 + random.nextInt(20);
      for (int i = 0; i < moves; i++) {
        int kind = random.nextInt(12);
        byte[] key = key();
        history.add("move " + kind + " " + text(key));
        if (kind == 0) {
          both.forEach(RocksIterator::seekToFirst);
        } else if (kind == 1) {
          both.forEach(RocksIterator::seekToLast);
        } else if (kind == 2 || !one.isValid()) {
          both.forEach(each -> each.seek(key));
        } else if (kind == 3) {
          both.forEach(each -> each.seekForPrev(key));
        } else if (kind == 4) {
          lazy.put(write, key, key);
          db.put(write, key, key);
        } else if (kind == 5) {
          for (RocksIterator each : both) {
            each.refresh();
            each.seek(key);
          }
        } else if (kind < 9) {
          both.forEach(RocksIterator::next);
        } else {
          both.forEach(RocksIterator::prev);
        }
        same(at(one), at(other), "move " + kind);
      }
    }
  }

  private static String at(RocksIterator iterator) throws RocksDBException {
    iterator.status();
    return iterator.isValid() ? text(iterator.key()) + "=" + text(iterator.value()) : "end";
  }

  private static List<String> scan(RocksIterator iterator) throws RocksDBException {
    List<String> found = new ArrayList<>();
    try (iterator) {
      for (iterator.seekToFirst(); iterator.isValid(); iterator.next()) {
        found.add(at(iterator));
      }
      found.add(at(iterator));
      for (iterator.seekToLast(); iterator.isValid(); iterator.prev()) {
        found.add(at(iterator));
      }
      found.add(at(iterator));
    }
    return found;
  }

  private static void same(Object expected, Object found, String where) {
    if (!Objects.equals(expected, found)) {
      throw new AssertionError(where + ": " + expected + " without holes, and " + found + " with holes");
    }
  }

  private byte[] key() {
    return key(random.nextInt(KEYS));
  }

  private static byte[] key(int number) {
    return String.format("key-%05d", number).getBytes(StandardCharsets.UTF_8);
  }

  private byte[] value() {
    return ("v" + random.nextInt(1 << 20)).repeat(1 + random.nextInt(8)).getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] bytes) {
    return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
  }

  private static List<String> texts(List<byte[]> all) {
    return all.stream().map(HoleyDatabase::text).toList();
  }

  private static void delete(Path directory) throws Exception {
    try (Stream<Path> all = Files.walk(directory)) {
      for (Path path : all.sorted(Comparator.reverseOrder()).toList()) {
        Files.delete(path);
      }
    }
  }
}
