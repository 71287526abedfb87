package io.pyspark.statestore.tables;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.read.SegmentReader;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BiPredicate;
import java.util.function.IntPredicate;
import java.util.zip.CRC32C;

/**
 * A local SST of which not all is there yet. It has its right length from the beginning, and holes, which are zeros.
 *
 * <p>Why nobody takes it for the whole file: {@link PartialFiles} knows it by its identity on the disk, until it is
 * whole or its store is closed. Whole is what has all bytes and the checksum that the checkpoint says.
 *
 * <p>The map of what is there is in memory only. A process that dies leaves a file that no other process ever takes:
 * each store of Spark's begins with an empty local directory.
 */
public final class PartialFile implements LocalCache.Cached {
  /** What is there is known by so many bytes. A data block is mostly 4 KB, and begins anywhere. */
  static volatile int chunkBytes = 1 << 10;

  /**
   * How fast a whole file is thought to come. Reads of single rows fetch nothing but blocks, until they have waited for
   * as long as the whole file would have taken. After that each also fetches what comes in the time that it waits for
   * its request in any case, on the average. So a file costs never much more than copying it at once, however long a
   * request takes and however many rows are read, and no read suddenly takes far longer than others.
   */
  static volatile long wholeBytesPerSecond = 100 << 20;

  /**
   * What is gone may come back: a directory that was renamed, a disk that was unmounted. After so long, in which all
   * that is known of the source is that it is gone, it counts as damage of the store, which would go on without its
   * base.
   */
  static volatile long lostAfterNanos = TimeUnit.MINUTES.toNanos(2);

  /** Between two looks that are so far apart it may have been there. The background looks more often. */
  static volatile long farApartNanos = TimeUnit.MINUTES.toNanos(2);

  /** The errors that say so. Others say that nothing is known of the source now. */
  private static final Set<Id> GONE =
      EnumSet.of(Id.PSS_MISSING_SEGMENT, Id.PSS_FOREIGN_FILE_MISSING, Id.PSS_CORRUPT_SEGMENT);

  private static final long FIRST_REST_MS = 500;
  private static final long LONGEST_REST_MS = 30_000;

  /** The same where parts of it may go again: a disk gives back whole pages. */
  static volatile int pageBytes = 1 << 12;

  /** A smaller file is always whole: its end takes a request, too. */
  static volatile long smallest = 1 << 20;

  /** It fetches so many bytes at most. */
  private static final int WIDEST = 1 << 20;

  private static final int MAX_READ = SegmentReader.CHUNK;
  private static final int BUFFER = 1 << 16;

  private enum State {
    PARTIAL,
    CHECKING,
    WHOLE,
    DAMAGED,
    CLOSED
  }

  /** Why something is fetched. */
  enum Why {
    /** Somebody waits for it. */
    DEMANDED,
    /** It is about to be read. */
    AHEAD,
    /** Nobody asked for it. */
    BACKGROUND
  }

  /** Where the bytes come from, and who is told what became of them. */
  interface Origin {
    /** Reads a part. */
    void read(long position, byte[] buffer, int length) throws IOException;

    /** Something was written to the file. Called before that counts as there. */
    void arrives();

    /** So many bytes that were missing are there. */
    void arrived(int bytes, Why why);

    /** All bytes are there. Checks them, and keeps the file for others where they are right. */
    void check(Path file, int crc32c) throws IOException;

    /** The file is whole, or was found to be damaged, or to be lost. */
    void decided(PartialFile file, IOException failure);

    /** All bytes are there, and could not be checked now. That has to be tried again. */
    void undecided(PartialFile file);

    /** The background could not go on, and tries again. */
    void postponed();
  }

  private final Path path;
  private final long length;
  private final Origin origin;
  private final Object key;

  /** What gives parts of the file back where there is no room for them; null where the file is to become whole. */
  private final LocalCache cache;

  /** Guarded by this. */
  private final Chunks chunks;

  /** Not a channel: the interruption of a task that waits for a channel would close it for all. Guarded by itself. */
  private final RandomAccessFile file;

  /** How many reads of single rows have waited for their blocks, and how long in all. */
  private long waits;

  private long waitedNanos;
  private State state = State.PARTIAL;
  private IOException failure;

  /** Since when the source is known to be gone; null where it is not. */
  private Long goneSinceNanos;

  /** When it was last seen to be gone. */
  private long goneAtNanos;

  /** How often in a row the background could not go on, and when it may try again. */
  private int failures;

  private long restUntilNanos = System.nanoTime();

  /** Background fetching goes on after what was asked for last. */
  private int cursor;

  private volatile long touchedNanos;

  /** Whether the rest is to come, though nobody has asked for it. */
  private boolean isWanted;

  /** Whether that was begun with. */
  private boolean isBegun;

  /** Nothing is given back from this chunk on. */
  private int keptFrom;

  /** How many need all of the file to stay. */
  private int holds;

  /** Whether RocksDB has deleted it. */
  private boolean isDeleted;

  /** Makes a file that has nothing but its length, and is to become whole. */
  PartialFile(Path path, long length, Origin origin) throws IOException {
    this(path, length, origin, null);
  }

  /**
   * Makes a file that has nothing but its length.
   *
   * @param cache gives parts of it back where there is no room for them; null where it is to become whole
   */
  PartialFile(Path path, long length, Origin origin, LocalCache cache) throws IOException {
    this(path, path, length, origin, cache);
    boolean done = false;
    try {
      file.setLength(length);
      done = true;
    } finally {
      if (!done) {
        release();
        Files.deleteIfExists(path);
      }
    }
  }

  /** Of a file that has this name also. */
  private PartialFile(Path path, Path opened, long length, Origin origin, LocalCache cache) throws IOException {
    this.path = path;
    this.length = length;
    this.origin = origin;
    this.cache = cache;
    chunks = new Chunks(length, cache == null ? chunkBytes : pageBytes);
    keptFrom = chunks.count();
    file = new RandomAccessFile(opened.toFile(), "rw");
    boolean done = false;
    try {
      key = PartialFiles.keyOf(opened);
      if (key == null) {
        throw new IOException("The disk of " + path + " does not tell files apart");
      }
      PartialFiles.add(this);
      done = true;
    } finally {
      if (!done) {
        file.close();
      }
    }
  }

  /**
   * Of a file that is whole, and in the checkpoint, so that parts of it may be given back.
   *
   * @param path its name
   * @param link another name, which it has meanwhile in any case
   */
  static PartialFile ofWhole(Path path, Path link, Origin origin, LocalCache cache) throws IOException {
    PartialFile made = new PartialFile(path, link, Files.size(link), origin, cache);
    made.cache.count(made.arrived(new Chunks.Run(0, made.chunks.count()), true));
    return made;
  }

  Path path() {
    return path;
  }

  @Override
  public long length() {
    return length;
  }

  Object key() {
    return key;
  }

  long touchedNanos() {
    return touchedNanos;
  }

  synchronized long missing() {
    return state == State.PARTIAL || state == State.CHECKING ? chunks.missing() : 0;
  }

  synchronized boolean isWhole() {
    return state == State.WHOLE;
  }

  /** Whether all bytes are there, and were not checked yet. */
  synchronized boolean isUnchecked() {
    return cache == null && state == State.PARTIAL && chunks.missing() == 0;
  }

  /**
   * A part of it was asked for. Where half of it is here now, all of it is wanted: no more comes for nothing then than
   * was asked for, and a whole file is read without a look at its holes.
   *
   * @return whether that has just become so
   */
  synchronized boolean wasAskedFor() {
    boolean becomes = !isWanted && cache == null && state == State.PARTIAL && 2 * chunks.missing() <= length;
    isWanted |= becomes;
    return becomes;
  }

  /** Whether half of it was asked for, and nobody has begun to fetch the rest at once, as whoever asks is to do now. */
  synchronized boolean isForRest() {
    boolean becomes = isWanted && !isBegun;
    isBegun |= becomes;
    return becomes;
  }

  /** The task that wanted the rest at once has ended; another one may want it again. */
  synchronized void restIsOver() {
    isBegun = false;
  }

  /** Whether the rest is to come, though nobody has asked for it. */
  synchronized boolean isWanted() {
    return isWanted;
  }

  /** Whether the background may try to go on. */
  synchronized boolean isRested() {
    return System.nanoTime() - restUntilNanos >= 0;
  }

  /** The background could not go on: it tries again, at growing intervals. Returns how often it could not, in a row. */
  int rest() {
    int inARow;
    synchronized (this) {
      inARow = ++failures;
      long ms = Math.min(LONGEST_REST_MS, FIRST_REST_MS << Math.min(inARow - 1, 10));
      restUntilNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
    }
    origin.postponed();
    return inARow;
  }

  /** The background went on. */
  synchronized void wentOn() {
    failures = 0;
  }

  /** Whether a range is there. */
  synchronized boolean has(long from, long to) {
    return chunks.has(chunks.at(from), chunks.after(to));
  }

  // ---- a cache of it

  /** From where on the file stays, however little room there is: RocksDB reads that when it opens the file. */
  synchronized void keepFrom(long offset) {
    keptFrom = chunks.at(offset);
  }

  /** RocksDB has read a part. What it reads again and again stays longer. */
  synchronized void wasRead(long from, long to) {
    chunks.wasRead(chunks.at(from), chunks.after(to));
  }

  /** Until it is let go, nothing of the file is given back. */
  synchronized void hold() {
    holds++;
  }

  synchronized void letGo() {
    holds--;
  }

  @Override
  public synchronized long here() {
    return length - chunks.missing();
  }

  @Override
  public long giveBack(long from, long to, HolePuncher puncher, BiPredicate<Long, Long> isHeld) {
    List<Chunks.Run> runs;
    long bytes;
    synchronized (this) {
      if (stays()) {
        return 0;
      }
      long before = chunks.missing();
      IntPredicate held = at -> isHeld.test(chunks.offset(at), chunks.offset(at + 1));
      runs = chunks.takeToGiveBack(chunks.at(from), Math.min(chunks.after(to), keptFrom), held);
      bytes = chunks.missing() - before;
    }
    try {
      // Whoever reads a part now finds that it is missing, and waits until it can be fetched again.
      if (!runs.isEmpty()) {
        puncher.punch(path, key, runs.stream().map(this::range).toList());
      }
    } finally {
      synchronized (this) {
        runs.forEach(chunks::gaveBack);
        notifyAll();
      }
    }
    return bytes;
  }

  /**
   * RocksDB has deleted the file. Its bytes go with its last name: a snapshot that is being taken may have another one,
   * reads the file by that, and has to find its length at any time.
   */
  synchronized void deleted() {
    isDeleted = true;
  }

  /** Whether nothing of it may go now. Called with the lock. */
  private boolean stays() {
    return state != State.PARTIAL || isDeleted || holds > 0 || PartialFiles.isPinned(key);
  }

  private HolePuncher.Range range(Chunks.Run run) {
    return new HolePuncher.Range(chunks.offset(run.first()), chunks.bytes(run));
  }

  /** Fetches a part that is there, because RocksDB cannot read it. */
  void renew(long from, long to) throws IOException {
    long forgotten;
    synchronized (this) {
      forgotten = chunks.forget(chunks.at(from), chunks.after(to));
    }
    cache.release(forgotten);
    need(from, to);
  }

  private long makeRoom(long bytes) {
    if (cache != null) {
      cache.take(bytes);
      return bytes;
    }
    return 0;
  }

  private void writeFetched(long at, byte[] bytes) throws IOException {
    try {
      write(at, bytes, bytes.length);
    } catch (IOException e) {
      // The disk may be full: others use it, too.
      if (cache == null || !cache.giveBack(bytes.length)) {
        throw e;
      }
      write(at, bytes, bytes.length);
    }
  }

  // ---- arrivals

  /** The bytes to whose multiples a file's end is fetched, so that it begins where a chunk does. */
  static int alignment() {
    return Math.max(pageBytes, chunkBytes);
  }

  /** Begins with bytes that were fetched before. They have to begin where a chunk does, and to reach the file's end. */
  void begin(byte[] tail) throws IOException {
    long from = length - tail.length;
    if (from % chunks.size() != 0) {
      throw new IllegalArgumentException("The end of " + path + " begins within a chunk");
    }
    write(from, tail, tail.length);
    long arrived = arrived(new Chunks.Run(chunks.at(from), chunks.count()), true);
    if (cache != null) {
      cache.count(arrived);
    }
  }

  /** Fetches a block for a read of a single row, and what is around it where such reads have waited for long. */
  void needBlock(long from, long to) throws IOException {
    long began = System.nanoTime();
    long width = width();
    need(from - from % width, Math.min(length, (to + width - 1) / width * width), Why.DEMANDED, true);
    synchronized (this) {
      waits++;
      waitedNanos += System.nanoTime() - began;
    }
  }

  /** The bytes to whose multiples the read of a row is extended. */
  private synchronized long width() {
    double wholeNanos = 1e9 * length / wholeBytesPerSecond;
    if (waitedNanos <= wholeNanos || cache != null && cache.isCrowded()) {
      return 1;
    }
    return Math.max(1, Math.min(WIDEST, waitedNanos / waits * wholeBytesPerSecond / 1_000_000_000));
  }

  /** Fetches what is missing of a range. For what others are fetching it waits. */
  void need(long from, long to) throws IOException {
    need(from, to, Why.DEMANDED, false);
  }

  /**
   * Fetches what rows are in that will be read soon, beside what the background fetches.
   *
   * @return the bytes of the request that it took; 0 where it took none, or several
   */
  long needSoon(long from, long to) throws IOException {
    return need(from, to, Why.AHEAD, true);
  }

  private long need(long from, long to, Why why, boolean isOfRow) throws IOException {
    touchedNanos = System.nanoTime();
    int last = chunks.after(to);
    int requests = 0;
    long bytes = 0;
    for (int at = chunks.at(from); at < last; ) {
      Chunks.Run taken;
      synchronized (this) {
        requireUsable();
        int first = chunks.nextMissing(at);
        if (first < last && chunks.isTaken(first, isOfRow)) {
          await();
          continue;
        }
        if (first >= last) {
          break;
        }
        taken = chunks.take(first, last, MAX_READ / chunks.size(), isOfRow);
        cursor = taken.end();
      }
      fetch(taken, why);
      requests++;
      bytes += chunks.bytes(taken);
      at = taken.end();
    }
    completeIfFilled();
    return requests == 1 ? bytes : 0;
  }

  /** Fetches something that is missing; returns how many bytes, 0 where there is nothing to do. */
  int fetchSome(int bytes) throws IOException {
    return fetchSome(bytes, 0);
  }

  /**
   * The same.
   *
   * @param bridge so many bytes that are there may come along between two parts that are missing, or a few anyway
   */
  int fetchSome(int bytes, long bridge) throws IOException {
    if (isUnchecked()) {
      // The check failed for a reason that says nothing of the file.
      complete();
      return 0;
    }
    Chunks.Run taken;
    synchronized (this) {
      if (state != State.PARTIAL) {
        return 0;
      }
      int first = chunks.nextToFetch(Math.min(cursor, chunks.count()));
      if (first >= chunks.count()) {
        first = chunks.nextToFetch(0);
      }
      if (first >= chunks.count()) {
        return 0;
      }
      long most = Math.min(MAX_READ, bytes) / chunks.size();
      taken = chunks.take(first, chunks.count(), most, bridge / chunks.size(), false);
      chunks.isInBackground(taken);
      cursor = taken.end();
    }
    fetch(taken, Why.BACKGROUND);
    completeIfFilled();
    return (int) chunks.bytes(taken);
  }

  private void fetch(Chunks.Run taken, Why why) throws IOException {
    boolean done = false;
    long room = 0;
    try {
      byte[] bytes = new byte[(int) chunks.bytes(taken)];
      room = makeRoom(bytes.length);
      origin.read(chunks.offset(taken.first()), bytes, bytes.length);
      writeFetched(chunks.offset(taken.first()), bytes);
      // Whoever has met the hole, and finds it filled, is to know that it was one.
      origin.arrives();
      done = true;
    } catch (StateStoreFilesException e) {
      if (GONE.contains(e.id())) {
        isGone(e);
      }
      throw e;
    } finally {
      long filled = arrived(taken, done);
      if (cache != null) {
        cache.release(room - filled);
      }
      if (done) {
        origin.arrived((int) filled, why);
      }
    }
  }

  /** The source is known to be gone. Where it was gone for long already, the file is lost. */
  private void isGone(StateStoreFilesException e) throws IOException {
    synchronized (this) {
      long now = System.nanoTime();
      if (goneSinceNanos == null || now - goneAtNanos >= farApartNanos) {
        goneSinceNanos = now;
      }
      goneAtNanos = now;
      if (state != State.PARTIAL || now - goneSinceNanos < lostAfterNanos) {
        return;
      }
      state = State.DAMAGED;
      failure = e;
      notifyAll();
    }
    damaged(e);
  }

  /** Tells that nothing will come of the file. Spark would take a local file of the right name and size again. */
  private void damaged(IOException found) throws IOException {
    try {
      // RocksDB may have given the name to another file.
      if (key.equals(PartialFiles.keyIfThere(path))) {
        Files.deleteIfExists(path);
      }
    } finally {
      origin.decided(this, found);
    }
  }

  private void write(long at, byte[] bytes, int n) throws IOException {
    synchronized (file) {
      if (cache == null && isFilled()) {
        // The background has brought it meanwhile. The file may be checked, and closed, already.
        return;
      }
      file.seek(at);
      file.write(bytes, 0, n);
    }
  }

  /** Returns how many bytes were missing before. */
  private synchronized long arrived(Chunks.Run taken, boolean done) {
    if (done) {
      goneSinceNanos = null;
    }
    // What comes after the end does not count.
    long filled = chunks.arrived(taken, done && state != State.CLOSED);
    notifyAll();
    return filled;
  }

  private synchronized boolean isFilled() {
    return chunks.missing() == 0;
  }

  private void completeIfFilled() throws IOException {
    if (cache == null && isFilled()) {
      complete();
    }
  }

  /** Fetches all that is missing, and returns once the file is whole. From then on nothing of it is given back. */
  void awaitWhole() throws IOException {
    hold();
    try {
      need(0, length);
      complete();
    } finally {
      letGo();
    }
  }

  /** All bytes are there: checks them, once. */
  private void complete() throws IOException {
    synchronized (this) {
      while (state == State.CHECKING) {
        await();
      }
      if (state == State.WHOLE) {
        return;
      }
      requireUsable();
      state = State.CHECKING;
    }
    State then = State.PARTIAL;
    IOException found = null;
    try {
      origin.check(path, crc32c());
      then = State.WHOLE;
    } catch (StateStoreFilesException e) {
      then = State.DAMAGED;
      found = e;
      throw e;
    } finally {
      synchronized (this) {
        if (state == State.CHECKING) {
          state = then;
          failure = found;
        }
        notifyAll();
      }
      if (then == State.WHOLE) {
        try {
          release();
        } finally {
          origin.decided(this, null);
        }
      } else if (then == State.DAMAGED) {
        damaged(found);
      } else {
        origin.undecided(this);
      }
    }
  }

  private int crc32c() throws IOException {
    CRC32C crc = new CRC32C();
    byte[] buffer = new byte[BUFFER];
    for (long at = 0; at < length; at += buffer.length) {
      int n = (int) Math.min(buffer.length, length - at);
      synchronized (file) {
        file.seek(at);
        file.readFully(buffer, 0, n);
      }
      crc.update(buffer, 0, n);
    }
    return (int) crc.getValue();
  }

  /** The store that has it is closed, and has deleted its names of it. Nothing more is fetched. */
  void close() throws IOException {
    synchronized (this) {
      if (state == State.WHOLE || state == State.CLOSED) {
        return;
      }
      state = State.CLOSED;
      notifyAll();
    }
    release();
  }

  synchronized boolean isClosed() {
    return state == State.CLOSED;
  }

  /** Whether it has holes for ever, and a name by which somebody could take them for data. */
  synchronized boolean staysKnown() {
    return isClosed() && !isFilled() && PartialFiles.isNamed(key);
  }

  private void release() throws IOException {
    PartialFiles.remove(this);
    if (cache != null) {
      cache.remove(this);
    }
    synchronized (file) {
      file.close();
    }
  }

  /** Called with the lock. */
  private void requireUsable() throws IOException {
    if (state == State.DAMAGED) {
      throw failure;
    }
    if (state == State.CLOSED) {
      throw new IOException(path + " was closed with its store before all of it was there");
    }
  }

  /** Called with the lock, which is free meanwhile. */
  private void await() throws InterruptedIOException {
    try {
      wait();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while waiting for a part of " + path);
    }
  }
}
