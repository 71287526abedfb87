package io.pyspark.statestore.tables;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiPredicate;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What stores whose state is in the checkpoint have of it on this process's disk, and what of it goes where there is no
 * room: {@code restore=remote}.
 *
 * <p>What may go: parts of SSTs that are durable in the checkpoint ({@link Cached#giveBack}). Why that loses nothing:
 * whoever reads such a part afterwards finds a hole, and has it fetched, as in any lazy load. What stays: the ends of
 * SSTs, which RocksDB reads when it opens them; what the checkpoint does not have yet; what a compaction reads; and the
 * blocks that a read under way has had fetched, because it needs all of them at once. So there may be more than the
 * limit, by some blocks for each thread, or by what is not in the checkpoint yet.
 *
 * <p>Which parts go: a hand goes round all files, an extent at a time, and takes what was read once at most since it
 * came. What was read once more stays until the hand comes by again. So a scan of everything does not displace what is
 * read all the time.
 */
public final class LocalCache {
  private static final Logger LOG = LoggerFactory.getLogger(LocalCache.class);

  /** So much is looked at in one step. */
  static final int EXTENT = 1 << 20;

  /** Where something is given back, it is one part in so many of the limit, so that it is not done all the time. */
  private static final int SLACK_SHARE = 64;

  private static final int MOST_SLACK = 16 << 20;

  /** After a look at everything that was not enough there is none for so long, and for so many times what it took. */
  private static final long LEAST_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  private static final int PAUSES = 50;

  private static final long SAY_NANOS = TimeUnit.MINUTES.toNanos(10);

  /** Of this process. */
  private static final LocalCache PROCESS = new LocalCache(new HolePuncher());

  /** A file of which parts may go. */
  interface Cached {
    /** Bytes of the whole file. */
    long length();

    /** Bytes of it on the disk. */
    long here();

    /**
     * Gives back what is not held, and was not read again and again.
     *
     * @param isHeld parts that somebody waits for
     * @return how many bytes
     */
    long giveBack(long from, long to, HolePuncher puncher, BiPredicate<Long, Long> isHeld);
  }

  private record Held(Cached file, long from, long to, Object reader) {}

  private final HolePuncher puncher;

  /** By the store that asks for it. The largest counts, as they share the disk. */
  private final Map<Object, Long> limits = new ConcurrentHashMap<>();

  /** Bytes on the disk: those of files here, and those of files that the checkpoint does not have. */
  private final AtomicLong used = new AtomicLong();

  private final AtomicLong own = new AtomicLong();
  private final AtomicLong givenBack = new AtomicLong();

  /** Bytes of all files of which parts may go, as if all of each were here. */
  private final AtomicLong lengths = new AtomicLong();

  /** What reads that are under way have had fetched. */
  private final Set<Held> held = ConcurrentHashMap.newKeySet();

  /** Held by the one thread that gives something back. The lists are guarded by themselves. */
  private final ReentrantLock giving = new ReentrantLock();

  private final List<Cached> files = new ArrayList<>();

  /** Where the hand is: a file of the list, and from where on in it. */
  private int handFile;

  private long handOffset;
  private volatile long pauseUntilNanos = System.nanoTime();
  private volatile long saidUnboundedNanos = System.nanoTime() - SAY_NANOS;
  private volatile long saidFullNanos = System.nanoTime() - SAY_NANOS;

  LocalCache(HolePuncher puncher) {
    this.puncher = puncher;
  }

  /** The one of this process. */
  public static LocalCache ofProcess() {
    return PROCESS;
  }

  // ---- who uses it

  /** A store keeps its files here. */
  void opened(Object store, long limit) {
    limits.put(store, limit);
  }

  void closed(Object store) {
    limits.remove(store);
  }

  /** The bytes that stores of this process may have on its disk. */
  public long limit() {
    return limits.values().stream().mapToLong(Long::longValue).max().orElse(0);
  }

  /** The bytes that they have. */
  public long used() {
    return used.get();
  }

  /** Of these, what cannot go because the checkpoint does not have it. */
  public long own() {
    return own.get();
  }

  /** The bytes that were given back since the process began. */
  public long givenBack() {
    return givenBack.get();
  }

  /** Parts of a file may go from now on. */
  void add(Cached file) {
    synchronized (files) {
      files.add(file);
    }
    lengths.addAndGet(file.length());
  }

  /** A file is deleted, or nothing of it may go any more. */
  void remove(Cached file) {
    boolean wasThere;
    synchronized (files) {
      wasThere = files.remove(file);
    }
    lengths.addAndGet(wasThere ? -file.length() : 0);
    used.addAndGet(-file.here());
    held.removeIf(each -> each.file == file);
  }

  /**
   * There are more bytes, or less, of which nothing may go.
   *
   * @param ofOwn how many more, or less, of them the checkpoint does not have
   */
  void stays(long bytes, long ofOwn) {
    own.addAndGet(ofOwn);
    if (bytes > 0) {
      take(bytes);
    } else {
      used.addAndGet(bytes);
    }
  }

  // ---- room

  private boolean isOver() {
    return used.get() > limit();
  }

  /**
   * Whether what nobody has asked for would displace what somebody has. Where files do not fit here, that is so as soon
   * as half of the room is taken, also when some of it is free for a moment.
   */
  boolean isCrowded() {
    long limit = limit();
    return lengths.get() > limit && used.get() > limit / 2;
  }

  /** There are so many bytes, whether there is room for them or not. */
  void count(long bytes) {
    used.addAndGet(bytes);
  }

  /** Whether there is more than the limit, and what is not in the checkpoint yet has a part in it. */
  boolean isWaitingForUploads() {
    return own.get() > 0 && isOver();
  }

  /** Takes so many bytes, and gives others back where there is no room. */
  void take(long bytes) {
    long limit = limit();
    if (used.addAndGet(bytes) > limit && limit > 0 && System.nanoTime() - pauseUntilNanos >= 0) {
      long began = System.nanoTime();
      giveBackTo(limit - Math.min(limit / SLACK_SHARE, MOST_SLACK));
      if (used.get() > limit) {
        // Nothing else can go now, and all files were looked at for it.
        long now = System.nanoTime();
        pauseUntilNanos = now + Math.max(LEAST_PAUSE_NANOS, PAUSES * (now - began));
      }
    }
  }

  /** Parts of one file more may go. */
  void mayGo() {
    pauseUntilNanos = System.nanoTime();
    take(0);
  }

  /** Whether there is more than there is room for, and nobody gives anything back now. Asked all the time. */
  public boolean isOverLimit() {
    return isOver() && !giving.isLocked();
  }

  /** Gives back what there is no room for: what could not go before may go now. */
  public void keepToLimit() {
    take(0);
  }

  /** Bytes that were taken did not come, or have gone. */
  void release(long bytes) {
    used.addAndGet(-bytes);
  }

  /** A part stays until the read that needs it is over. */
  void hold(Cached file, long from, long to, Object reader) {
    held.add(new Held(file, from, to, reader));
  }

  /** A read is over. */
  void letGo(Object reader) {
    held.removeIf(each -> each.reader == reader);
  }

  /** Gives back so many bytes, although there is room by the limit. Returns whether anything was. */
  boolean giveBack(long bytes) {
    return giveBackTo(used.get() - bytes) > 0;
  }

  private long giveBackTo(long aim) {
    long freed = 0;
    giving.lock();
    try {
      // Twice round: what was read again is forgotten first.
      long left = 2 * lengthOfAll() + EXTENT;
      while (used.get() > aim && left > 0) {
        long step = step();
        if (step < 0) {
          break;
        }
        freed += step;
        left -= EXTENT;
      }
    } finally {
      giving.unlock();
    }
    givenBack.addAndGet(freed);
    if (used.get() > limit() + MOST_SLACK) {
      sayFull();
    }
    return freed;
  }

  private long lengthOfAll() {
    synchronized (files) {
      // The last extent of each file may be small.
      return files.stream().mapToLong(file -> file.length() + EXTENT).sum();
    }
  }

  /** Looks at the next extent. Returns how many bytes were given back; less than 0 where none can be. */
  private long step() {
    if (!puncher.isWorking()) {
      // What a file thinks that it has given back it would fetch again, though it is here.
      sayUnbounded();
      return -1;
    }
    Cached file;
    synchronized (files) {
      if (files.isEmpty()) {
        return -1;
      }
      if (handFile >= files.size()) {
        handFile = 0;
        handOffset = 0;
      }
      file = files.get(handFile);
    }
    long from = handOffset;
    handOffset += EXTENT;
    if (handOffset >= file.length()) {
      handFile++;
      handOffset = 0;
    }
    long freed = file.giveBack(from, Math.min(from + EXTENT, file.length()), puncher, heldOf(file));
    used.addAndGet(-freed);
    if (!puncher.isWorking()) {
      sayUnbounded();
      return -1;
    }
    return freed;
  }

  private void sayUnbounded() {
    long now = System.nanoTime();
    if (now - saidUnboundedNanos >= SAY_NANOS) {
      saidUnboundedNanos = now;
      LOG.warn(
          "local.sizeLimit has no effect now: this process cannot give back parts of files ({}). What to do: have a"
              + " python3 on the PATH of executors, or PYSPARK_PYTHON set, and spark.local.dir on a file system such as"
              + " ext4 or xfs",
          puncher.whyNot());
    }
  }

  private BiPredicate<Long, Long> heldOf(Cached file) {
    List<Held> of = held.stream().filter(each -> each.file == file).toList();
    return (from, to) -> of.stream().anyMatch(each -> each.from < to && each.to > from);
  }

  private void sayFull() {
    long now = System.nanoTime();
    if (now - saidFullNanos >= SAY_NANOS) {
      saidFullNanos = now;
      LOG.warn(
          "Stores have {} MB on the disk of this process, more than local.sizeLimit ({} MB): {} MB are not in the"
              + " checkpoint yet, and what a compaction reads stays as well. What to do: a larger local.sizeLimit, or"
              + " snapshots more often",
          used.get() >> 20,
          limit() >> 20,
          own.get() >> 20);
    }
  }
}
