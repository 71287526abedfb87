package io.pyspark.statestore.heap;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.Unchecked;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps the buckets of a heap store that nobody has used for long in files on the local disk, where memory is short:
 * {@code heap.spill=auto}.
 *
 * <p>Why nothing is lost: a bucket never changes. It is written, and only then is a {@link SpilledBucket} put in its
 * place, slot by slot, wherever the same array still is; what a task has put there meanwhile stays. The file stays open
 * for as long as anything refers to a bucket in it. A bucket that is read is checked against what was written.
 *
 * <p>Which buckets: a hand goes round the tries of all versions. It passes a bucket that was used since it was last
 * there, and spills the others, in each version that has them: before that, nothing would be free. It goes on from
 * where it stopped, when memory is short again.
 *
 * <p>Files that are less than half of buckets which versions still have are given up: those buckets are written anew.
 */
public final class HeapSpill implements SpillOwner, AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(HeapSpill.class);

  /** A bucket that is smaller stays: nothing would be gained. */
  private static final int SMALLEST = 4 * SpilledBucket.BYTES;

  /** A row may be as large as an array; one that is larger than this stays. */
  private static final int LARGEST = 256 << 20;

  /** The hand goes round so often at most: once all buckets were passed, the next time they are not. */
  private static final int ROUNDS = 2;

  /** Between two rounds is so many times what one takes. */
  private static final int PAUSE_OF_ROUNDS = 20;

  private static final int AVERAGED_READS = 16;

  /** After an error of the disk nothing is spilled for so long. */
  private static final long REST_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final Path directory;
  private final String store;
  private final double highWaterMark;
  private final double lowWaterMark;
  private final boolean isWatched;

  /** Versions, the newest last: those of {@link #keepOnly}, and what was made since. Guarded by itself. */
  private final List<WeakReference<RowTrie>> tries = new ArrayList<>();

  /** Of them, those of the last {@link #keepOnly}. */
  private final Set<RowTrie> loaded = Collections.newSetFromMap(new WeakHashMap<>());

  private final Set<SpillFile> files = new LinkedHashSet<>();
  private final Set<SpillFile> unreadable = new HashSet<>();
  private SpillFile current;
  private volatile long fileBytes;

  /** The slot of the root with which it goes on. */
  private int hand;

  /** What the current call of {@link #spill(long)} has freed. */
  private long freed;

  /** By slot of the root, so that each can be counted anew while the others change. */
  private final AtomicLongArray spilledBytes = new AtomicLongArray(Node.SLOTS);

  private final AtomicLong reads = new AtomicLong();

  /** How long a read takes, on the average of the last ones. Threads may overwrite each other's. */
  private volatile long readNanos;

  private final HeapAhead ahead = new HeapAhead(this);
  private volatile long writtenBytes;
  private volatile long restUntilNanos = System.nanoTime();

  /** Whether a version may have gone since the last count, and with it what only that version had on the disk. */
  private volatile boolean haveVersionsChanged;

  /** Whether more is on the disk than there can be, so that it has to be counted soon. */
  private volatile boolean isMiscounted;

  /** The count, or the clearing of files, that is under way; null where none is. */
  private Round round;

  private long nextRoundNanos = System.nanoTime();
  private volatile boolean isClosed;

  private HeapSpill(Path directory, String store, double highWaterMark, double lowWaterMark, boolean isWatched) {
    this.directory = directory;
    this.isWatched = isWatched;
    this.store = store;
    this.highWaterMark = highWaterMark;
    this.lowWaterMark = lowWaterMark;
  }

  /**
   * Of a store that has no version yet.
   *
   * @param directory for its files, on the local disk
   * @param store what messages call the store
   * @param highWaterMark when so much of the heap is used, buckets are spilled
   * @param lowWaterMark until so much is left
   */
  public static HeapSpill open(Path directory, String store, double highWaterMark, double lowWaterMark) {
    HeapSpill made = new HeapSpill(directory, store, highWaterMark, lowWaterMark, true);
    HeapSpillMonitor.add(made);
    return made;
  }

  /** As {@link #open}, without anybody who watches memory. */
  static HeapSpill unwatched(Path directory) {
    return new HeapSpill(directory, "test", 1, 1, false);
  }

  double highWaterMark() {
    return highWaterMark;
  }

  double lowWaterMark() {
    return lowWaterMark;
  }

  /**
   * A version was made. Spark also makes one for each read: these have nothing of their own, and are left out. The
   * others are found when they have grown, or are loaded.
   */
  void made(RowTrie trie) {
    if (!isWatched) {
      add(trie);
    }
  }

  /** A version has got larger by so many bytes. The task waits where there is no room for them. */
  void grown(RowTrie trie, long bytes) {
    add(trie);
    grown(bytes);
  }

  private void add(RowTrie trie) {
    synchronized (tries) {
      tries.removeIf(each -> each.get() == null);
      if (tries.stream().noneMatch(each -> each.get() == trie)) {
        tries.add(new WeakReference<>(trie));
        haveVersionsChanged = true;
      }
    }
  }

  /**
   * The store has these versions now, the oldest first, and none of those any more that this was said of before. What
   * other attempts of a task write meanwhile stays.
   */
  void keepOnly(List<RowTrie> versions) {
    synchronized (tries) {
      tries.removeIf(each -> each.get() == null || loaded.contains(each.get()) || versions.contains(each.get()));
      List<WeakReference<RowTrie>> made = List.copyOf(tries);
      tries.clear();
      versions.forEach(each -> tries.add(new WeakReference<>(each)));
      tries.addAll(made);
      loaded.clear();
      loaded.addAll(versions);
    }
    haveVersionsChanged = true;
  }

  /** The versions that there are, the newest first. */
  private List<RowTrie> versions() {
    List<RowTrie> found = new ArrayList<>();
    synchronized (tries) {
      for (int i = tries.size() - 1; i >= 0; i--) {
        RowTrie trie = tries.get(i).get();
        if (trie != null) {
          found.add(trie);
        }
      }
    }
    return found;
  }

  private boolean isLoaded(RowTrie trie) {
    synchronized (tries) {
      return !isWatched || loaded.contains(trie);
    }
  }

  /** Bytes of heap that all versions take together, about; what they share counts once. */
  long heapBytes() {
    long sum = 0;
    List<RowTrie> versions = versions();
    for (RowTrie each : versions) {
      // What an attempt shares with a version that is gone, others have, or nobody.
      boolean isAttempt = each.isCopy() && !isLoaded(each);
      sum += isAttempt || versions.stream().anyMatch(each::isCopyOf) ? each.ownBytes() : each.bytes();
    }
    long spilled = spilledBytes();
    if (spilled > sum) {
      // A version has gone, and what only it had on the disk still counts.
      isMiscounted = true;
    }
    return Math.max(0, sum - spilled);
  }

  /** Bytes of heap that all versions would take more if nothing of them was spilled, about. */
  public long spilledBytes() {
    long sum = 0;
    for (int slot = 0; slot < Node.SLOTS; slot++) {
      sum += spilledBytes.get(slot);
    }
    return Math.max(0, sum);
  }

  private void addSpilled(SpilledBucket bucket, long times) {
    spilledBytes.addAndGet(Node.slotAt(bucket.firstHash(), 0), times * bucket.saved());
  }

  /** Bytes of its files on the disk. */
  long fileBytes() {
    return fileBytes;
  }

  /** How long a read takes, on the average of the last ones. */
  long readNanos() {
    return readNanos;
  }

  /** Brings back what is going to be read. */
  public HeapAhead ahead() {
    return ahead;
  }

  /** Bytes of buckets that were written to files. */
  public long writtenBytes() {
    return writtenBytes;
  }

  /** How many buckets were read of files. */
  public long reads() {
    return reads.get();
  }

  private void grown(long bytes) {
    if (isWatched) {
      HeapSpillMonitor.grown(bytes);
    }
  }

  /** Whether buckets may be spilled: not after an error of the disk. */
  boolean isReady() {
    return !isClosed && System.nanoTime() - restUntilNanos >= 0;
  }

  // ---- out

  /**
   * Spills buckets until so many bytes of heap are free, if there are as many.
   *
   * @return how many are
   */
  synchronized long spill(long bytes) {
    freed = 0;
    if (!isReady()) {
      return freed;
    }
    Node.spilling();
    try {
      for (int step = 0; step < ROUNDS * Node.SLOTS && freed < bytes && !isClosed; step++) {
        Map<byte[], SpilledBucket> known = new IdentityHashMap<>();
        long freedBefore = freed;
        visit(roots(), hand, hand + 1, (node, slot, content) -> spill(node, slot, content, known));
        hand = (hand + 1) % Node.SLOTS;
        if (isWatched) {
          HeapSpillMonitor.freed(freed - freedBefore);
        }
      }
    } catch (IOException e) {
      rest(e);
    }
    return freed;
  }

  private void rest(IOException why) {
    restUntilNanos = System.nanoTime() + REST_NANOS;
    LOG.warn(
        "Rows of {} cannot be moved to {}; they stay where they are, and it is tried again in a minute. What to do:"
            + " make room on that disk, or set spark.local.dir to another one",
        store,
        directory,
        why);
  }

  /**
   * Spills a bucket, unless it was used, or is not worth it.
   *
   * @param known what became of the buckets of this step, which several versions have: null for one that stays
   */
  private void spill(Node node, int first, Object content, Map<byte[], SpilledBucket> known) throws IOException {
    if (!(content instanceof byte[] bucket)) {
      return;
    }
    int size = 1;
    while (first + size < Node.SLOTS && node.seen(first + size) == bucket) {
      size++;
    }
    SpilledBucket spilled = known.get(bucket);
    if (!known.containsKey(bucket)) {
      if (!isToStay(node, Node.mask(first, size), bucket)) {
        spilled = append(bucket);
        freed += spilled.saved();
        addSpilled(spilled, 1);
      }
      known.put(bucket, spilled);
    }
    for (int slot = first; spilled != null && slot < first + size; slot++) {
      node.replace(slot, bucket, spilled);
    }
  }

  private static boolean isToStay(Node node, int mask, byte[] bucket) {
    boolean wasUsed = (node.used & mask) != 0;
    node.used &= ~mask;
    return wasUsed || bucket.length < SMALLEST || bucket.length > LARGEST;
  }

  private SpilledBucket append(byte[] bucket) throws IOException {
    if (current == null || current.isFull()) {
      current = SpillFile.in(directory, this);
      files.add(current);
    }
    SpilledBucket spilled = current.append(bucket);
    fileBytes += bucket.length;
    current.live += bucket.length;
    writtenBytes += bucket.length;
    return spilled;
  }

  // ---- in

  @Override
  public byte[] read(SpilledBucket bucket) {
    try {
      long began = System.nanoTime();
      byte[] found = bucket.file().read(bucket);
      readNanos += (System.nanoTime() - began - readNanos) / AVERAGED_READS;
      reads.incrementAndGet();
      return found;
    } catch (IOException e) {
      throw Unchecked.raise(
          new StateStoreFilesException(
              Id.PSS_HEAP_SPILL_FAILED,
              "Rows of "
                  + store
                  + " that were moved to "
                  + bucket.file()
                  + " (offset "
                  + bucket.offset()
                  + ", "
                  + bucket.length()
                  + " bytes) cannot be read: "
                  + e.getMessage()
                  + ". The checkpoint has them. What to do: look at that disk, and start the query again;"
                  + " heap.spill=off keeps all rows in memory",
              e));
    }
  }

  @Override
  public void isBack(SpilledBucket bucket) {
    addSpilled(bucket, -1);
    grown(bucket.length());
  }

  @Override
  public void isReplaced(SpilledBucket bucket) {
    addSpilled(bucket, -1);
  }

  // ---- files that are no longer needed

  private interface Visitor<E extends Exception> {
    void found(Node node, int slot, Object content) throws E;
  }

  private Node[] roots() {
    return versions().stream().map(RowTrie::seenRoot).toArray(Node[]::new);
  }

  /**
   * Visits the buckets in some slots, and below them, of versions: all of them at one place after the other, and what
   * neighbouring versions share once.
   */
  private static <E extends Exception> void visit(Node[] versions, int from, int to, Visitor<E> visitor) throws E {
    for (int slot = from; slot < to; slot++) {
      List<Node> children = new ArrayList<>(versions.length);
      Node newer = null;
      for (Node node : versions) {
        Object content = node == newer ? null : node.seen(slot);
        newer = node;
        if (content instanceof Node child) {
          children.add(child);
        } else if (content != null && (slot == 0 || node.seen(slot - 1) != content)) {
          visitor.found(node, slot, content);
        }
      }
      if (!children.isEmpty()) {
        visit(children.toArray(Node[]::new), 0, Node.SLOTS, visitor);
      }
    }
  }

  /** Goes through all tries, a slot of the root at a time, so that whoever needs room need not wait for the end. */
  private final class Round {
    /** Files whose buckets are written anew; empty where buckets are only counted. */
    private final Set<SpillFile> givenUp;

    private final Map<SpillFile, Long> live = new HashMap<>();
    private int slot;

    /** How long it worked. */
    private long tookNanos;

    Round(Set<SpillFile> givenUp) {
      this.givenUp = givenUp;
    }

    boolean isOver() {
      return slot == Node.SLOTS;
    }

    void step() {
      long began = System.nanoTime();
      Map<SpilledBucket, Object> known = new IdentityHashMap<>();
      long[] spilled = {0};
      visit(
          roots(),
          slot,
          slot + 1,
          (node, at, content) -> {
            if (content instanceof SpilledBucket bucket) {
              Object now = givenUp.contains(bucket.file()) ? moved(node, at, bucket, known) : bucket;
              if (now instanceof SpilledBucket there && known.put(there, there) == null) {
                live.merge(there.file(), (long) there.length(), Long::sum);
                spilled[0] += there.saved();
              }
            }
          });
      spilledBytes.set(slot, spilled[0]);
      slot++;
      tookNanos += System.nanoTime() - began;
    }

    /** Writes a bucket anew, or brings it back where the disk takes nothing: what is left of files is not much. */
    private Object moved(Node node, int at, SpilledBucket bucket, Map<SpilledBucket, Object> known) {
      Object copy = known.computeIfAbsent(bucket, this::copied);
      for (int each = at; each < Node.SLOTS && node.seen(each) == bucket; each++) {
        node.replace(each, bucket, copy);
      }
      return copy;
    }

    private Object copied(SpilledBucket bucket) {
      byte[] bytes;
      try {
        bytes = bucket.file().read(bucket);
      } catch (IOException e) {
        if (unreadable.add(bucket.file())) {
          LOG.warn(
              "Rows of {} in {} cannot be read; the query fails when it needs them. What to do: look at that disk",
              store,
              bucket.file(),
              e);
        }
        return bucket;
      }
      try {
        return isReady() ? append(bytes) : bytes;
      } catch (IOException e) {
        rest(e);
        return bytes;
      }
    }

    /** What was counted holds now. A file is let go of when nothing of it was found: it may be read all the same. */
    void end() {
      files.forEach(file -> file.live = live.getOrDefault(file, 0L));
      files.removeIf(file -> file != current && file.isFull() && file.live == 0);
      fileBytes = files.stream().mapToLong(SpillFile::length).sum();
      nextRoundNanos = System.nanoTime() + PAUSE_OF_ROUNDS * tookNanos;
    }
  }

  /**
   * Counts what versions have on the disk, where they have come or gone, and lets go of files without any of it. Where
   * files have more than twice of that, what is left in those that have least is written anew.
   *
   * @param nanos it stops after so long, and goes on with the next call
   */
  synchronized void tidy(long nanos) {
    long began = System.nanoTime();
    while (System.nanoTime() - began < nanos && (round != null || begins())) {
      round.step();
      if (round.isOver()) {
        round.end();
        round = null;
      }
    }
  }

  private boolean begins() {
    if (isClosed || files.isEmpty()) {
      return false;
    }
    boolean isLarge = fileBytes > 2 * spilledBytes() + 2L * SpillFile.fullBytes;
    boolean isTime = isMiscounted || System.nanoTime() - nextRoundNanos >= 0;
    if (!isTime || !isLarge && !haveVersionsChanged && !isMiscounted) {
      return false;
    }
    Set<SpillFile> givenUp = new HashSet<>();
    if (isLarge) {
      // Where the disk is full, only what is few enough to be in memory instead.
      long most = isReady() ? Long.MAX_VALUE : SpillFile.fullBytes / 4;
      for (SpillFile file : files.stream().sorted(Comparator.comparingLong(each -> each.live)).toList()) {
        if (file != current
            && file.isFull()
            && !unreadable.contains(file)
            && 2 * file.live <= file.length()
            && file.live <= most) {
          givenUp.add(file);
          most -= file.live;
        }
      }
    }
    haveVersionsChanged = false;
    isMiscounted = false;
    round = new Round(givenUp);
    return true;
  }

  /** Nothing more is spilled. What is in files can be read by whoever still has a version. */
  @Override
  public void close() {
    isClosed = true;
    HeapSpillMonitor.remove(this);
    synchronized (this) {
      synchronized (tries) {
        tries.clear();
      }
      files.clear();
      unreadable.clear();
      current = null;
      fileBytes = 0;
      round = null;
    }
  }
}
