package io.pyspark.statestore.heap;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;

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
 * <p>{@link SpillFiles} says which files are given up; what versions still have of them is written anew.
 */
public final class HeapSpill implements SpillOwner, AutoCloseable {
  /** A bucket that is smaller stays: nothing would be gained. */
  private static final int SMALLEST = 4 * SpilledBucket.BYTES;

  /** A row may be as large as an array; one that is larger than this stays. */
  private static final int LARGEST = 256 << 20;

  /** The hand goes round so often at most: once all buckets were passed, the next time they are not. */
  private static final int ROUNDS = 2;

  /** Between two rounds is so many times what the first one took; less where files have too much. */
  private static final int PAUSE_OF_ROUNDS = 20;

  private static final int PAUSE_WHERE_LARGE = 1;

  private static final long PAUSE_AFTER_ERRORS_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final SpillFiles files;
  private final double highWaterMark;
  private final double lowWaterMark;
  private final boolean isWatched;
  private final HeapVersions versions;

  /** The slot of the root with which it goes on. */
  private int hand;

  /** What the current call of {@link #spill(long)} has freed. */
  private long freed;

  /** By slot of the root, so that each can be counted anew while the others change. */
  private final AtomicLongArray spilledBytes = new AtomicLongArray(Node.SLOTS);

  private final HeapAhead ahead = new HeapAhead(this);

  /** Whether a version may have gone since the last count, and with it what only that version had on the disk. */
  private volatile boolean haveVersionsChanged;

  /** Whether more is on the disk than there can be, so that it has to be counted soon. */
  private volatile boolean isMiscounted;

  /** The count, or the clearing of files, that is under way; null where none is. */
  private Round round;

  private long roundEndedNanos = System.nanoTime();
  private long roundTookNanos;
  private long noRoundUntilNanos = System.nanoTime();
  private volatile boolean isClosed;

  private HeapSpill(SpillFiles files, double highWaterMark, double lowWaterMark, boolean isWatched) {
    this.files = files;
    this.isWatched = isWatched;
    versions = new HeapVersions(!isWatched);
    this.highWaterMark = highWaterMark;
    this.lowWaterMark = lowWaterMark;
  }

  /**
   * Of a store that has no version yet.
   *
   * @param store what messages call the store
   * @param highWaterMark when so much of the heap is used, buckets are spilled
   * @param lowWaterMark until so much is left
   */
  public static HeapSpill open(String store, double highWaterMark, double lowWaterMark) {
    HeapSpill made = new HeapSpill(SpillFiles.ofExecutor(store), highWaterMark, lowWaterMark, true);
    HeapSpillMonitor.add(made);
    return made;
  }

  /** As {@link #open}, without anybody who watches memory. */
  static HeapSpill unwatched(Path directory) {
    return new HeapSpill(new SpillFiles(directory, "test"), 1, 1, false);
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
    if (!trie.weight().isKnown) { // this thread would have said so
      versions.add(trie);
      haveVersionsChanged = true;
    }
  }

  /** As {@link HeapVersions#keepOnly}. */
  void keepOnly(List<RowTrie> now) {
    versions.keepOnly(now);
    haveVersionsChanged = true;
  }

  /** Bytes of heap that all versions take together, about; what they share counts once. */
  long heapBytes() {
    long sum = versions.bytes();
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
    return files.bytes();
  }

  /** Whether it has not let go of a file. */
  boolean hasFile(SpillFile file) {
    return files.has(file);
  }

  /** How long a read takes, on the average of the last ones. */
  long readNanos() {
    return files.readNanos();
  }

  /** Brings back what is going to be read. */
  public HeapAhead ahead() {
    return ahead;
  }

  /** Bytes of buckets that were written to files. */
  public long writtenBytes() {
    return files.writtenBytes();
  }

  /** How many buckets were read of files. */
  public long reads() {
    return files.reads();
  }

  private void grown(long bytes) {
    if (isWatched) {
      HeapSpillMonitor.grown(bytes);
    }
  }

  /** Whether buckets may be spilled: not after an error of the disk. */
  boolean isReady() {
    return !isClosed && files.areReady();
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
      files.rest(e);
    }
    return freed;
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
        spilled = files.append(bucket, this);
        freed += spilled.saved();
        addSpilled(spilled, 1);
        if (round != null && hand < round.slot) {
          round.count(spilled); // it has passed here
        }
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

  // ---- in

  @Override
  public byte[] read(SpilledBucket bucket) {
    return files.read(bucket);
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
    return versions.newestFirst().stream().map(RowTrie::seenRoot).toArray(Node[]::new);
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
      Set<SpilledBucket> counted = Collections.newSetFromMap(new IdentityHashMap<>());
      visit(
          roots(),
          slot,
          slot + 1,
          (node, at, content) -> {
            if (content instanceof SpilledBucket bucket) {
              Object now = givenUp.contains(bucket.file()) ? moved(node, at, bucket, known) : bucket;
              if (now instanceof SpilledBucket there && counted.add(there)) {
                count(there);
              }
            }
          });
      spilledBytes.set(slot, counted.stream().mapToLong(SpilledBucket::saved).sum());
      slot++;
      tookNanos += System.nanoTime() - began;
    }

    void count(SpilledBucket bucket) {
      live.merge(bucket.file(), (long) bucket.length(), Long::sum);
    }

    /** Writes a bucket anew, or brings it back where the disk takes nothing: what is left of files is not much. */
    private Object moved(Node node, int at, SpilledBucket bucket, Map<SpilledBucket, Object> known) {
      Object copy = known.computeIfAbsent(bucket, each -> files.copied(each, HeapSpill.this));
      for (int each = at; each < Node.SLOTS && node.seen(each) == bucket; each++) {
        node.replace(each, bucket, copy);
      }
      return copy;
    }

    /** What was counted holds now. */
    void end() {
      files.have(live);
      roundEndedNanos = System.nanoTime();
      roundTookNanos = tookNanos;
    }
  }

  /**
   * Counts what versions have on the disk, where they have come or gone, and lets go of files without any of it. Where
   * files are large for that, what is left in some of them is written anew.
   *
   * @param nanos it stops after so long, and a step at least, and goes on with the next call
   */
  synchronized void tidy(long nanos) {
    long began = System.nanoTime();
    try {
      do {
        if (round == null && !begins()) {
          break;
        }
        round.step();
        if (round.isOver()) {
          round.end();
          round = null;
        }
      } while (System.nanoTime() - began < nanos);
    } catch (RuntimeException | Error e) {
      // Memory has run out, perhaps. The same step would have the same end.
      round = null;
      noRoundUntilNanos = System.nanoTime() + PAUSE_AFTER_ERRORS_NANOS;
      throw e;
    }
  }

  private boolean begins() {
    if (isClosed || files.bytes() == 0 || System.nanoTime() - noRoundUntilNanos < 0) {
      return false;
    }
    boolean isLarge = files.areLargeFor(spilledBytes());
    long pauseNanos = (isLarge ? PAUSE_WHERE_LARGE : PAUSE_OF_ROUNDS) * roundTookNanos;
    boolean isTime = isMiscounted || System.nanoTime() - roundEndedNanos >= pauseNanos;
    if (!isTime || !isLarge && !haveVersionsChanged && !isMiscounted) {
      return false;
    }
    haveVersionsChanged = false;
    isMiscounted = false;
    round = new Round(isLarge ? files.toGiveUp() : Set.of());
    return true;
  }

  /** Nothing more is spilled. What is in files can be read by whoever still has a version. */
  @Override
  public void close() {
    isClosed = true;
    HeapSpillMonitor.remove(this);
    synchronized (this) {
      versions.clear();
      files.close();
      round = null;
    }
  }
}
