package io.pyspark.statestore.tables;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.read.SegmentReader;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.BitSet;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;

/**
 * A local SST of which not all is there yet. It has its right length from the beginning, and holes, which are zeros.
 *
 * <p>Why nobody takes it for the whole file: it is in a register by its identity on the disk, not by its name, so each
 * hard link of it is found, too. It stays there, and is held open so that its identity cannot become another file's,
 * until it is whole or its store is closed. Whole is what has all bytes and the checksum that the checkpoint says.
 *
 * <p>The map of what is there is in memory only. A process that dies leaves a file that no other process ever takes:
 * each store of Spark's begins with an empty local directory.
 */
public final class PartialFile {
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

  /** It fetches so many bytes at most. */
  private static final int WIDEST = 1 << 20;

  /** Fewer chunks than this between two holes are fetched again, so that both take one request. */
  private static final int BRIDGE = 32;

  private static final int MAX_READ = SegmentReader.CHUNK;
  private static final int BUFFER = 1 << 16;

  /** By identity on the disk. */
  private static final Map<Object, PartialFile> ALL = new ConcurrentHashMap<>();

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

    /** Bytes were written to the file. */
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
  private final int chunk;
  private final int chunks;
  private final Object key;

  /** Not a channel: the interruption of a task that waits for a channel would close it for all. Guarded by itself. */
  private final RandomAccessFile file;

  private final BitSet here;
  private final BitSet underWay;

  /**
   * Of what is under way, that for which no read waits. Its parts are large, so reads of rows fetch their blocks beside
   * it.
   */
  private final BitSet inBackground;

  private long missing;

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

  /** Makes a file that has nothing but its length. */
  PartialFile(Path path, long length, Origin origin) throws IOException {
    this.path = path;
    this.length = length;
    this.origin = origin;
    chunk = chunkBytes;
    chunks = Math.toIntExact((length + chunk - 1) / chunk);
    here = new BitSet(chunks);
    underWay = new BitSet(chunks);
    inBackground = new BitSet(chunks);
    missing = length;
    file = new RandomAccessFile(path.toFile(), "rw");
    boolean done = false;
    try {
      file.setLength(length);
      key = keyOf(path);
      if (key == null) {
        throw new IOException("The disk of " + path + " does not tell files apart");
      }
      ALL.put(key, this);
      done = true;
    } finally {
      if (!done) {
        file.close();
        Files.deleteIfExists(path);
      }
    }
  }

  /** The file of this name, if parts of it are missing; else null. */
  static PartialFile at(Path path) throws IOException {
    return ALL.isEmpty() ? null : ALL.get(keyOf(path));
  }

  /** Makes a local file whole that is about to be read by somebody else than RocksDB. */
  public static void makeWhole(Path path) throws IOException {
    PartialFile partial = at(path);
    if (partial != null) {
      partial.awaitWhole();
    }
  }

  /** Bytes that are missing in this process. */
  public static long missingInAll() {
    return ALL.values().stream().mapToLong(PartialFile::missing).sum();
  }

  /** What tells the files of which parts are missing from all others. */
  static Set<Object> allKeys() {
    return ALL.keySet();
  }

  /** What tells a file from all others, whatever its name; null where there is nothing. */
  static Object keyOf(Path path) throws IOException {
    return Files.readAttributes(path, BasicFileAttributes.class).fileKey();
  }

  Path path() {
    return path;
  }

  Object key() {
    return key;
  }

  long touchedNanos() {
    return touchedNanos;
  }

  synchronized long missing() {
    return state == State.PARTIAL || state == State.CHECKING ? missing : 0;
  }

  synchronized boolean isWhole() {
    return state == State.WHOLE;
  }

  /** Whether all bytes are there, and were not checked yet. */
  synchronized boolean isUnchecked() {
    return state == State.PARTIAL && missing == 0;
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
    int first = (int) (from / chunk);
    return here.nextClearBit(first) >= chunkAfter(to);
  }

  /** Begins with bytes that were fetched before. They have to begin where a chunk does, and to reach the file's end. */
  void begin(byte[] tail) throws IOException {
    int first = (int) ((length - tail.length) / chunk);
    write((long) first * chunk, tail, tail.length);
    arrived(first, chunks, true);
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
    if (waitedNanos <= wholeNanos) {
      return 1;
    }
    return Math.max(1, Math.min(WIDEST, waitedNanos / waits * wholeBytesPerSecond / 1_000_000_000));
  }

  /** Fetches what is missing of a range. For what others are fetching it waits. */
  void need(long from, long to) throws IOException {
    need(from, to, Why.DEMANDED, false);
  }

  /** Fetches what rows are in that will be read soon, beside what the background fetches. */
  void needSoon(long from, long to) throws IOException {
    need(from, to, Why.AHEAD, true);
  }

  private void need(long from, long to, Why why, boolean isOfRow) throws IOException {
    touchedNanos = System.nanoTime();
    int last = chunkAfter(to);
    for (int at = (int) (from / chunk); at < last; ) {
      int first;
      int end;
      synchronized (this) {
        requireUsable();
        first = here.nextClearBit(at);
        if (first < last && isTaken(first, isOfRow)) {
          await();
          continue;
        }
        if (first >= last) {
          break;
        }
        end = take(first, last, isOfRow);
        cursor = end;
      }
      fetch(first, end, why);
      at = end;
    }
    if (isFilled()) {
      complete();
    }
  }

  /** Fetches something that is missing; returns how many bytes, 0 where there is nothing to do. */
  int fetchSome(int bytes) throws IOException {
    int first;
    int end;
    if (isUnchecked()) {
      // The check failed for a reason that says nothing of the file.
      complete();
      return 0;
    }
    synchronized (this) {
      if (state != State.PARTIAL) {
        return 0;
      }
      first = nextToFetch(Math.min(cursor, chunks));
      if (first >= chunks) {
        first = nextToFetch(0);
      }
      if (first >= chunks) {
        return 0;
      }
      end = take(first, (int) Math.min(chunks, first + Math.max(1L, bytes / chunk)), false);
      inBackground.set(first, end);
      cursor = end;
    }
    fetch(first, end, Why.BACKGROUND);
    if (isFilled()) {
      complete();
    }
    return (int) (Math.min((long) end * chunk, length) - (long) first * chunk);
  }

  private int nextToFetch(int from) {
    int at = here.nextClearBit(from);
    while (at < chunks && underWay.get(at)) {
      at = here.nextClearBit(underWay.nextClearBit(at));
    }
    return at;
  }

  /** Whether a chunk is being fetched, so that to wait for it is better than to fetch it. */
  private boolean isTaken(int at, boolean isOfRow) {
    return underWay.get(at) && !(isOfRow && inBackground.get(at));
  }

  /** Takes a run of chunks that nobody fetches. The first and the last of it are missing. */
  private int take(int first, int last, boolean isOfRow) {
    long most = Math.min(last, first + Math.max(1L, MAX_READ / chunk));
    int end = first + 1;
    for (int at = end; at < most && !isTaken(at, isOfRow) && at - end < BRIDGE; at++) {
      if (!here.get(at)) {
        end = at + 1;
      }
    }
    underWay.set(first, end);
    inBackground.clear(first, end);
    return end;
  }

  private void fetch(int first, int end, Why why) throws IOException {
    boolean done = false;
    try {
      long from = (long) first * chunk;
      byte[] bytes = new byte[(int) (Math.min((long) end * chunk, length) - from)];
      origin.read(from, bytes, bytes.length);
      write(from, bytes, bytes.length);
      done = true;
    } catch (StateStoreFilesException e) {
      if (GONE.contains(e.id())) {
        isGone(e);
      }
      throw e;
    } finally {
      int filled = arrived(first, end, done);
      if (done) {
        origin.arrived(filled, why);
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
      Files.deleteIfExists(path);
    } finally {
      origin.decided(this, found);
    }
  }

  private void write(long at, byte[] bytes, int n) throws IOException {
    synchronized (file) {
      if (isFilled()) {
        // The background has brought it meanwhile. The file may be checked, and closed, already.
        return;
      }
      file.seek(at);
      file.write(bytes, 0, n);
    }
  }

  /** Returns how many bytes were missing before. */
  private synchronized int arrived(int first, int end, boolean done) {
    underWay.clear(first, end);
    inBackground.clear(first, end);
    long before = missing;
    if (done) {
      goneSinceNanos = null;
      for (int from = here.nextClearBit(first); from < end; from = here.nextClearBit(from)) {
        int to = here.nextSetBit(from);
        to = to < 0 ? end : Math.min(to, end);
        here.set(from, to);
        missing -= Math.min((long) to * chunk, length) - (long) from * chunk;
      }
    }
    notifyAll();
    return (int) (before - missing);
  }

  private synchronized boolean isFilled() {
    return missing == 0;
  }

  /** Fetches all that is missing, and returns once the file is whole. */
  void awaitWhole() throws IOException {
    need(0, length);
    complete();
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

  /** The store that has it is closed, and so are all links to it deleted. Nothing more is fetched. */
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

  private void release() throws IOException {
    ALL.remove(key, this);
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

  private int chunkAfter(long to) {
    return (int) Math.min(chunks, (Math.min(to, length) + chunk - 1) / chunk);
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
