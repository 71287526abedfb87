package io.pyspark.statestore.read;

import io.pyspark.statestore.files.Parallel;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Segment;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.CRC32C;

/**
 * Fetches what a load will read next: the SSTs that a snapshot's zip names, or the changelogs or deltas that follow the
 * opened one. Neighbours in a file are read as one range, and several ranges at a time.
 */
public final class Prefetcher {
  /** Gaps of up to so many bytes are read and dropped, which is cheaper than another request. */
  private static final int MAX_GAP = 64 * 1024;

  private static final int MAX_RANGE = 8 << 20;

  /**
   * Bytes that are fetched and not asked for yet, of one checkpoint in a process: as many as one range has. What does
   * not fit is read when Spark opens it.
   */
  public static final long MEMORY = 8 << 20;

  private static final int FILES_AHEAD = 64;
  private static final long STALE_NANOS = 30_000_000_000L;
  private static final Pattern VERSION = Pattern.compile("(\\d{1,18})((?:_[^./]*)?\\.(?:changelog|delta))");

  private final Index index;
  private final Predicate<Segment> isCached;
  private final FileHandles handles;
  private final SegmentReader reader;
  private final Executor threads;
  private final Map<Segment, Fetch> fetched = new ConcurrentHashMap<>();

  /**
   * The changelog of each store that was opened last. Spark opens it once more: for its version, then for its records.
   */
  private final Map<String, Segment> openedOnce = new ConcurrentHashMap<>();

  private final AtomicLong bytesHeld = new AtomicLong();

  private final Lazily lazy;

  /** Takes out of what a load needs what it need not have whole. */
  public interface Lazily {
    void expect(List<Segment> wanted);
  }

  private record Fetch(Future<byte[]> range, int offset, long sinceNanos) {}

  private record Range(MergedFile file, long start, long end, List<Segment> segments) {}

  /**
   * @param isCached whether this host has a segment's bytes
   */
  public Prefetcher(
      Index index,
      Predicate<Segment> isCached,
      FileHandles handles,
      SegmentReader reader,
      Lazily lazy,
      Executor threads) {
    this.index = index;
    this.isCached = isCached;
    this.handles = handles;
    this.reader = reader;
    this.lazy = lazy;
    this.threads = threads;
  }

  /** Returns the segment's bytes, checked, where they were fetched; else null. */
  public byte[] take(Segment segment) throws IOException {
    Fetch fetch = fetched.get(segment);
    if (fetch == null) {
      return null;
    }
    if (!isOpenedAgain(segment)) {
      drop(segment);
    }
    byte[] bytes = new byte[(int) segment.length()];
    try {
      System.arraycopy(fetch.range.get(), fetch.offset, bytes, 0, bytes.length);
    } catch (ExecutionException e) {
      return null;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("Interrupted while reading state/" + segment.path());
    }
    CRC32C crc = new CRC32C();
    crc.update(bytes, 0, bytes.length);
    reader.check(segment, crc);
    return bytes;
  }

  /** A file was opened. Fetches what Spark reads after it. */
  public void opened(Segment segment, byte[] bytes) throws IOException {
    List<Segment> wanted = new ArrayList<>();
    if (segment.path().endsWith(".zip")) {
      namedBy(segment, bytes, wanted);
      lazy.expect(wanted);
    } else if (segment.entry().type() == Entry.TYPE_CHANGELOG || segment.entry().type() == Entry.TYPE_DELTA) {
      following(segment, wanted);
    }
    wanted.removeIf(s -> s.length() > SegmentReader.WHOLE || fetched.containsKey(s) || isCached.test(s));
    if (!wanted.isEmpty()) {
      fetch(wanted);
    }
  }

  /**
   * Says whether Spark opens this file once more. Drops the one before of this store, which it has not opened again.
   */
  private boolean isOpenedAgain(Segment segment) {
    if (segment.entry().type() != Entry.TYPE_CHANGELOG) {
      return false;
    }
    String store = segment.path().substring(0, segment.path().lastIndexOf('/') + 1);
    if (openedOnce.remove(store, segment)) {
      return false;
    }
    Segment before = openedOnce.put(store, segment);
    if (before != null) {
      drop(before);
    }
    return true;
  }

  /** A file was read that nobody had fetched. */
  public void wasRead(Segment segment, byte[] bytes) {
    if (!isOpenedAgain(segment)) {
      return;
    }
    Fetch kept = new Fetch(CompletableFuture.completedFuture(bytes), 0, System.nanoTime());
    if (bytesHeld.addAndGet(bytes.length) > MEMORY || fetched.putIfAbsent(segment, kept) != null) {
      bytesHeld.addAndGet(-bytes.length);
    }
  }

  private void drop(Segment segment) {
    if (fetched.remove(segment) != null) {
      bytesHeld.addAndGet(-segment.length());
    }
  }

  private void namedBy(Segment zip, byte[] bytes, List<Segment> wanted) throws IOException {
    for (String path : SnapshotZip.filesNamed(zip.path(), new ByteArrayInputStream(bytes))) {
      addIfLive(path, wanted);
    }
  }

  private void following(Segment segment, List<Segment> wanted) {
    int slash = segment.path().lastIndexOf('/') + 1;
    Matcher name = VERSION.matcher(segment.path().substring(slash));
    // With checkpoint ids in the names, this one's name does not tell the next one's.
    if (name.matches() && !name.group(2).startsWith("_")) {
      long version = Long.parseLong(name.group(1));
      for (int i = 1; i <= FILES_AHEAD; i++) {
        int before = wanted.size();
        addIfLive(segment.path().substring(0, slash) + (version + i) + name.group(2), wanted);
        if (wanted.size() == before) {
          return;
        }
      }
    }
  }

  private void addIfLive(String path, List<Segment> wanted) {
    Segment segment = index.find(path);
    if (segment != null) {
      wanted.add(segment);
    }
  }

  private void fetch(List<Segment> wanted) {
    List<Range> ranges = new ArrayList<>();
    for (Range range : ranges(wanted)) {
      long bytes = range.segments.stream().mapToLong(Segment::length).sum();
      if (bytesHeld.addAndGet(bytes) > MEMORY) {
        bytesHeld.addAndGet(-bytes);
        break;
      }
      ranges.add(range);
    }
    List<Callable<byte[]>> reads = ranges.stream().<Callable<byte[]>>map(range -> () -> read(range)).toList();
    List<FutureTask<byte[]>> started = Parallel.start(threads, Parallel.READS, reads);
    long now = System.nanoTime();
    for (int i = 0; i < ranges.size(); i++) {
      Range range = ranges.get(i);
      FutureTask<byte[]> read = started.get(i);
      range.segments.forEach(
          s -> {
            if (fetched.putIfAbsent(s, new Fetch(read, (int) (s.entry().offset() - range.start), now)) != null) {
              bytesHeld.addAndGet(-s.length());
            }
          });
    }
  }

  private byte[] read(Range range) throws IOException {
    byte[] buffer = new byte[(int) (range.end - range.start)];
    handles.readFully(range.file, range.start, buffer, 0, buffer.length);
    return buffer;
  }

  private static List<Range> ranges(List<Segment> wanted) {
    Map<MergedFile, List<Segment>> byFile = new HashMap<>();
    wanted.forEach(s -> byFile.computeIfAbsent(s.holder(), f -> new ArrayList<>()).add(s));
    List<Range> ranges = new ArrayList<>();
    byFile.forEach(
        (file, segments) -> {
          segments.sort(Comparator.comparingLong(s -> s.entry().offset()));
          Range open = null;
          for (Segment s : segments) {
            long start = s.entry().offset();
            long end = start + s.length();
            if (open != null && start - open.end <= MAX_GAP && end - open.start <= MAX_RANGE) {
              open.segments.add(s);
              open = new Range(file, open.start, Math.max(end, open.end), open.segments);
              ranges.set(ranges.size() - 1, open);
            } else {
              open = new Range(file, start, end, new ArrayList<>(List.of(s)));
              ranges.add(open);
            }
          }
        });
    return ranges;
  }

  /** Drops what was fetched and not asked for. */
  public void dropStale() {
    long now = System.nanoTime();
    fetched.forEach(
        (segment, fetch) -> {
          if (now - fetch.sinceNanos > STALE_NANOS) {
            drop(segment);
          }
        });
    openedOnce.values().removeIf(segment -> !fetched.containsKey(segment));
  }
}
