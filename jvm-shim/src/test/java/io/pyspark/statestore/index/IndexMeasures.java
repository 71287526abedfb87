package io.pyspark.statestore.index;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.format.Entry;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What an {@link Index} costs: heap, and how long others wait for its lock while it is cleaned.
 *
 * <pre>java -Xmx6g -cp $SPARK/jars/*:shim.jar:test-shim.jar io.pyspark.statestore.index.IndexMeasures</pre>
 */
public final class IndexMeasures {
  private static final int MILLION = 1_000_000;
  private static final int PER_FILE = 4_000;

  private IndexMeasures() {}

  /** Which files a checkpoint has. */
  private enum Kind {
    /** Half of the paths are SSTs, the others changelogs and snapshots of a join's four stores. */
    MIXED,
    /** SSTs only, which have the longest names. */
    SSTS
  }

  /** Prints heap and waits; {@code waits} as the argument leaves out the heap. */
  public static void main(String[] arguments) {
    for (Kind kind : arguments.length > 0 ? new Kind[0] : Kind.values()) {
      for (int partitions : new int[] {200, 10_000}) {
        System.out.printf(
            "%s, %d partitions: %.0f bytes a segment, %.0f a tombstone%n",
            kind, partitions, heapPerEntry(kind, partitions, Entry.PUT), heapPerEntry(kind, partitions, Entry.DELETE));
      }
    }
    for (int round = 0; round < 5; round++) {
      waits(200_000);
    }
  }

  private static double heapPerEntry(Kind kind, int partitions, int entryKind) {
    long before = usedHeap();
    Index index = filled(kind, partitions, MILLION, entryKind);
    double each = (double) (usedHeap() - before) / MILLION;
    if (index.files().isEmpty()) {
      throw new AssertionError();
    }
    return each;
  }

  private static Index filled(Kind kind, int partitions, int count, int entryKind) {
    Index index = new Index();
    Random random = new Random(1);
    for (int done = 0; done < count; done += PER_FILE) {
      MergedFile file = new MergedFile(name(done), MergedFile.Writer.NOBODY, new Clocks.Moment(0, 0));
      index.addIfAbsent(file);
      List<Entry> entries = new ArrayList<>();
      long offset = 64;
      for (int i = done; i < done + PER_FILE; i++) {
        String path = path(kind, i, partitions, random);
        long stamp = 1_790_000_000_000L + i << 16;
        long writer = 0x7b5133a07a4d09ffL - i % 50;
        entries.add(
            entryKind == Entry.DELETE
                ? Entry.tombstone(path, 0, stamp, writer)
                : new Entry(Entry.PUT, Entry.typeOf(path), 0, i, stamp, writer, offset, 3_000 + i % 90_000, 0, path));
        offset += 3_000 + i % 90_000;
      }
      index.apply(file, entries);
      file.read(offset, offset, true, 1, 1, 1, 1);
    }
    return index;
  }

  private static String name(int number) {
    return String.format("1790000000000-7b5133a07a4d09ff-%d.merged", number);
  }

  private static String path(Kind kind, int i, int partitions, Random random) {
    int partition = i % partitions;
    int version = i / partitions;
    if (kind == Kind.SSTS || i % 2 == 0) {
      UUID id = new UUID(random.nextLong(), random.nextLong());
      return String.format("0/%d/SSTs/%06d-%s.sst", partition, version, id);
    }
    String[] stores = {"left-keyToNumValues/", "left-keyWithIndexToValue/", "right-keyToNumValues/", ""};
    String store = stores[i / 2 % stores.length];
    return "0/" + partition + "/" + store + version + (version % 10 == 0 ? ".zip" : ".changelog");
  }

  private static long usedHeap() {
    Runtime runtime = Runtime.getRuntime();
    for (int i = 0; i < 4; i++) {
      System.gc();
    }
    return runtime.totalMemory() - runtime.freeMemory();
  }

  /** Half of the segments are dead; prints the longest wait of a thread that asks for a path over and over. */
  private static void waits(int count) {
    Index index = filled(Kind.MIXED, 200, count, Entry.PUT);
    MergedFile tombstones = new MergedFile(name(count), MergedFile.Writer.NOBODY, new Clocks.Moment(0, 0));
    index.addIfAbsent(tombstones);
    List<Entry> deletions = new ArrayList<>();
    for (Segment segment : index.listRecursively("")) {
      if (segment.entry().crc32c() % 2 == 0) {
        deletions.add(Tombstone.of(segment).toEntry());
      }
    }
    measure("apply", index, () -> index.apply(tombstones, deletions));
    tombstones.read(1, 1, true, 1, 1, 1, 1);
    Steps steps = new Steps();
    measure("proveTombstones", index, () -> TombstoneUse.prove(index, 2, steps::next, refresh -> true));
    System.out.printf("its longest step: %.2f ms of CPU%n", steps.longest / 1e6);
    measure("useOfTombstones", index, () -> TombstoneUse.of(index, tombstones));
    measure("liveSegments of each file", index, () -> index.files().forEach(index::liveSegments));
    measure("remove of each file", index, () -> index.files().forEach(index::remove));
    System.out.println();
  }

  /** Asked at the beginning of each step of a walk; measures CPU time, because a busy machine does not spoil that. */
  private static final class Steps {
    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    private long last = Long.MAX_VALUE;
    private long longest;

    private boolean next(MergedFile file) {
      long now = threads.getCurrentThreadCpuTime();
      longest = last == Long.MAX_VALUE ? 0 : Math.max(longest, now - last);
      last = now;
      return true;
    }
  }

  private static void measure(String what, Index index, Runnable walk) {
    usedHeap(); // so that no collection comes in between
    AtomicLong longest = new AtomicLong();
    Thread asks =
        new Thread(
            () -> {
              while (!Thread.currentThread().isInterrupted()) {
                long before = System.nanoTime();
                index.find("0/0/1.changelog");
                longest.accumulateAndGet(System.nanoTime() - before, Math::max);
                for (long until = System.nanoTime() + 50_000; System.nanoTime() < until; ) {
                  Thread.onSpinWait();
                }
              }
            });
    asks.start();
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    long before = System.nanoTime();
    long cpuBefore = threads.getCurrentThreadCpuTime();
    walk.run();
    long cpu = threads.getCurrentThreadCpuTime() - cpuBefore;
    long took = System.nanoTime() - before;
    asks.interrupt();
    try {
      asks.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
    System.out.printf(
        "%s: %.1f ms, %.1f ms of CPU, longest wait %.2f ms%n", what, took / 1e6, cpu / 1e6, longest.get() / 1e6);
  }
}
