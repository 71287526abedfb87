package io.pyspark.statestore.heap;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Watches the heap of this process, and has stores spill before it is full. Where collectors set a size for old objects
 * (Serial, Parallel), that is the heap which counts: state does not get old elsewhere.
 *
 * <p>What stores have in the heap they know. What everything else has is what a collection has left, less that; garbage
 * that was not collected yet would look like memory that is in use, so the smaller one of two estimates counts: after
 * the last collection of old objects, and now. Where both together are above the high water mark, stores spill down to
 * the low one; also from there on where a quarter of the time goes into collections. A twentieth of the heap is left to
 * stores in any case: more would not help.
 */
public final class HeapSpillMonitor {
  private static final Logger LOG = LoggerFactory.getLogger(HeapSpillMonitor.class);

  private static final long PERIOD_MS = 50;
  private static final long WINDOW_NANOS = TimeUnit.SECONDS.toNanos(5);
  private static final double TOO_MUCH_COLLECTING = 0.25;
  private static final double LEFT_TO_STORES = 0.05;

  /** A task waits for room no longer than this at a time: what it needs may be on its way. */
  private static final long LONGEST_WAIT_MS = 2_000;

  /** Where nothing can be spilled it is looked at again when state has grown by so much of the heap. */
  private static final double UNTIL_NEXT_LOOK = 0.02;

  /** After so long with the files of a store there is a look at the heap. */
  private static final long LONGEST_TIDYING_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  private static final long LOG_NANOS = TimeUnit.SECONDS.toNanos(10);

  private static final Set<HeapSpill> STORES = ConcurrentHashMap.newKeySet();
  private static final Object LOCK = new Object();

  private static Thread thread;

  /** How much more state may get into the heap before tasks wait; half way to its end from the high water mark. */
  private static final AtomicLong ROOM = new AtomicLong(Long.MAX_VALUE / 2);

  /** With so much room left the high water mark is reached. */
  private static volatile long roomAbove;

  /** Counts looks at the heap. Guarded by the lock. */
  private static long looks;

  private static boolean isWanted;

  /** What was moved since it was last said, and how long that took. For the thread that watches. */
  private static long unsaidBytes;

  private static long unsaidNanos;
  private static long saidNanos = System.nanoTime() - LOG_NANOS;

  private HeapSpillMonitor() {}

  /** Watches for one more store. */
  static void add(HeapSpill store) {
    synchronized (LOCK) {
      STORES.add(store);
      if (thread == null) {
        thread = new Thread(HeapSpillMonitor::run, "pyspark-statestore-heap-spill");
        thread.setDaemon(true);
        thread.start();
      }
      LOCK.notifyAll();
    }
  }

  static void remove(HeapSpill store) {
    STORES.remove(store);
  }

  /** The stores for which it watches. */
  static Collection<HeapSpill> stores() {
    return STORES;
  }

  /** Bytes of heap that stores of this process would take more if nothing of them was on the disk. */
  public static long spilledBytes() {
    return STORES.stream().mapToLong(HeapSpill::spilledBytes).sum();
  }

  /** Bytes of the files in which they are. */
  public static long fileBytes() {
    return STORES.stream().mapToLong(HeapSpill::fileBytes).sum();
  }

  /** How many buckets the stores that are open have read of them. */
  static long reads() {
    return STORES.stream().mapToLong(HeapSpill::reads).sum();
  }

  /**
   * More state has got into the heap. Where that is much, the heap is looked at now, and not at the next opportunity;
   * and where there is no room left, the task waits until something was spilled.
   */
  static void grown(long bytes) {
    long left = ROOM.addAndGet(-bytes);
    if (left >= roomAbove) {
      return;
    }
    synchronized (LOCK) {
      isWanted = true;
      LOCK.notifyAll();
      long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LONGEST_WAIT_MS);
      try {
        for (long before = looks; ROOM.get() < 0 && looks < before + 2 && System.nanoTime() - end < 0; ) {
          LOCK.wait(PERIOD_MS);
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** State has left the heap. */
  static void freed(long bytes) {
    if (ROOM.getAndAdd(bytes) < 0) {
      synchronized (LOCK) {
        LOCK.notifyAll();
      }
    }
  }

  private static void run() {
    Heap heap = new Heap();
    while (true) {
      try {
        synchronized (LOCK) {
          if (!isWanted) {
            LOCK.wait(STORES.isEmpty() ? 0 : PERIOD_MS);
          }
          isWanted = false;
        }
        look(heap);
        synchronized (LOCK) {
          looks++;
          LOCK.notifyAll();
        }
        for (HeapSpill each : STORES) {
          each.tidy(LONGEST_TIDYING_NANOS);
        }
      } catch (InterruptedException e) {
        LOG.debug("The thread that spills state ends with its process. An interrupt is of no effect", e);
      } catch (Exception | Error e) {
        sayFailed(e);
      }
    }
  }

  private static void sayFailed(Throwable why) {
    try {
      LOG.warn(
          "Could not move state to the local disk; trying again. What to do: nothing if it does not come again; else"
              + " look at the disk, and give executors more memory",
          why);
    } catch (Exception | Error e) {
      // There may be no memory to say it. The thread has to go on, or nobody makes room any more.
    }
  }

  private static void look(Heap heap) {
    long state = STORES.stream().mapToLong(HeapSpill::heapBytes).sum();
    heap.look(state);
    if (STORES.isEmpty()) {
      return;
    }
    double high = STORES.stream().mapToDouble(HeapSpill::highWaterMark).min().orElse(1) * heap.max();
    double low = Math.min(high, STORES.stream().mapToDouble(HeapSpill::lowWaterMark).min().orElse(1) * heap.max());
    double used = state + heap.others();
    double most = (high + heap.max()) / 2;
    long wanted = (long) Math.min(used - low, state - LEFT_TO_STORES * heap.max());
    boolean isNeeded = used > high || used > low && heap.collecting() > TOO_MUCH_COLLECTING;
    boolean isPossible = wanted > 0 && STORES.stream().anyMatch(HeapSpill::isReady);
    roomAbove = (long) (most - high);
    ROOM.set((long) (most - used));
    if (isNeeded && (!isPossible || spill(wanted, state) < wanted / 4)) {
      // What there is to spill is on the disk. Who waits would wait for nothing; but it may be another matter soon.
      roomAbove = 0;
      ROOM.set((long) (UNTIL_NEXT_LOOK * heap.max()));
    }
  }

  private static long spill(long wanted, long state) {
    long freed = 0;
    long began = System.nanoTime();
    for (HeapSpill each : STORES) {
      if (freed < wanted) {
        // Each gives its share; what is left after that, the next ones give.
        long share = (long) ((double) wanted * each.heapBytes() / Math.max(1, state)) + 1;
        freed += each.spill(Math.min(share, wanted - freed));
      }
    }
    unsaidBytes += freed;
    unsaidNanos += System.nanoTime() - began;
    if (unsaidBytes > 0 && System.nanoTime() - saidNanos >= LOG_NANOS) {
      LOG.info(
          "Moved {} MB of state to the local disk in {} ms, because the heap is nearly full; {} MB are there",
          unsaidBytes >> 20,
          TimeUnit.NANOSECONDS.toMillis(unsaidNanos),
          spilledBytes() >> 20);
      unsaidBytes = 0;
      unsaidNanos = 0;
      saidNanos = System.nanoTime();
    }
    return freed;
  }

  /** What is known of the heap. */
  private static final class Heap {
    private final List<MemoryPoolMXBean> old =
        ManagementFactory.getMemoryPoolMXBeans().stream()
            .filter(pool -> pool.getType() == MemoryType.HEAP && !pool.getName().matches(".*(Eden|Survivor|Young).*"))
            .toList();

    /** The largest that old objects may take together; where it is not set, all of the heap. */
    private final long max =
        old.stream().allMatch(pool -> pool.getUsage().getMax() > 0)
            ? old.stream().mapToLong(pool -> pool.getUsage().getMax()).sum()
            : Runtime.getRuntime().maxMemory();

    private final List<GarbageCollectorMXBean> collectors = ManagementFactory.getGarbageCollectorMXBeans();

    /** What the last collection of old objects has left, and what of it was not state. */
    private long afterCollection = -1;

    private long othersThen = Long.MAX_VALUE;
    private long others;

    private long windowNanos = System.nanoTime();
    private long collectedMs = collectedMs();
    private double collecting;

    void look(long state) {
      long after = old.stream().map(MemoryPoolMXBean::getCollectionUsage).mapToLong(Heap::used).sum();
      if (after > 0 && after != afterCollection) {
        afterCollection = after;
        othersThen = Math.max(0, after - state);
      }
      long now = old.stream().map(MemoryPoolMXBean::getUsage).mapToLong(Heap::used).sum();
      others = Math.min(othersThen, Math.max(0, now - state));
      long nanos = System.nanoTime();
      if (nanos - windowNanos >= WINDOW_NANOS) {
        long collected = collectedMs();
        collecting = (collected - collectedMs) * 1e6 / (nanos - windowNanos);
        collectedMs = collected;
        windowNanos = nanos;
      }
    }

    private static long used(MemoryUsage usage) {
      return usage == null ? 0 : usage.getUsed();
    }

    private long collectedMs() {
      return collectors.stream().mapToLong(each -> Math.max(0, each.getCollectionTime())).sum();
    }

    long max() {
      return max;
    }

    /** What everything but state takes. */
    long others() {
      return others;
    }

    /** Which part of the time collections took. */
    double collecting() {
      return collecting;
    }
  }
}
