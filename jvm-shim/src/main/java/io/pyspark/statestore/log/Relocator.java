package io.pyspark.statestore.log;

import io.pyspark.statestore.StateStoreFilesException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Moves live segments out of closed files that are mostly dead, so that these can be unlinked. A moved segment keeps
 * its key and raises its generation (rule 5), so whatever happens to its path meanwhile still wins or kills as before.
 *
 * <p>Each process moves segments of the partitions that it serves; nobody has to be elected.
 */
final class Relocator {
  private static final Logger LOG = LoggerFactory.getLogger(Relocator.class);
  /** From this share of what {@code maxSpaceAmplification} allows, dead files are not left until the next maintenance. */
  private static final double SOME = 0.2;
  /** Live segments are moved from this share of it, until garbage is down to the other one: what waits may die yet. */
  private static final double START = 0.55;

  private static final double STOP = 0.5;
  /** Bytes that may be moved for each byte that is written, as long as garbage stays below {@code URGENT}. */
  private static final double SHARE_OF_WRITES = 0.25;

  private static final double URGENT = 0.9;
  /** Copied bytes per reclaimed byte: files that cost more are left to die by themselves. */
  private static final double MAX_COST = 1.5;

  private static final double MAX_URGENT_COST = 3;
  /** Less garbage than this is left alone, in bytes. */
  private static final long WORTHWHILE = 16 << 10;
  /** One commit's worth, in bytes. */
  private static final long CHUNK = 4 << 20;

  /** The format has 16 bits for it. */
  private static final int MAX_GENERATION = 0xffff;

  private final LogContext context;
  private final Refresher refresher;
  private final RelocationMarkers markers;
  private final Pins pins;
  private final SegmentReader reader;
  private final LocalSpace localSpace;
  private final Predicate<String> serves;
  private final Writer writer;
  private final AtomicLong credit = new AtomicLong();

  /** Makes relocated segments durable. */
  interface Writer {
    void write(List<Commit.Item> items) throws IOException;
  }

  Relocator(
      LogContext context,
      Refresher refresher,
      RelocationMarkers markers,
      Pins pins,
      SegmentReader reader,
      LocalSpace localSpace,
      Predicate<String> serves,
      Writer writer) {
    this.context = context;
    this.refresher = refresher;
    this.markers = markers;
    this.pins = pins;
    this.reader = reader;
    this.localSpace = localSpace;
    this.serves = serves;
    this.writer = writer;
  }

  /**
   * One round, bounded to a file's size of copied bytes.
   *
   * @return whether anything was moved
   */
  boolean run() throws IOException {
    if (!isNeeded()) {
      return false;
    }
    RelocationMarkers.Marker marker = markers.make();
    try {
      // Only what is found to live after the announcement may be copied (rule 5).
      refresher.refresh();
      return moveOut(marker);
    } finally {
      marker.end();
    }
  }

  boolean hasSomeGarbage() {
    return hasGarbage(SOME);
  }

  /** Whether there is so much garbage that live segments are worth to be moved. */
  boolean hasMuchGarbage() {
    return hasGarbage(START);
  }

  /** Whether there is so much garbage that nothing else counts. */
  boolean isUrgent() {
    return hasGarbage(URGENT);
  }

  /** Whether it is time to move live segments, and there are such that may be moved. */
  boolean isNeeded() {
    if (tooMuchGarbage() <= 0) {
      return false;
    }
    List<Candidate> found = candidates();
    return !found.isEmpty() && found.get(0).bytes <= budget();
  }

  /** This process has committed so many bytes. */
  void written(long bytes) {
    long earned = (long) (SHARE_OF_WRITES * bytes);
    credit.updateAndGet(known -> Math.min(context.options().maxFileSize(), known + earned));
  }

  /** Bytes of garbage above those at which a round stops, or 0 where it is not worth to begin one. */
  private double tooMuchGarbage() {
    return hasMuchGarbage() ? garbage() - STOP * allowedGarbage() : 0;
  }

  /** Bytes that may be moved now. */
  private long budget() {
    long most = context.options().maxFileSize();
    return isUrgent() ? most : Math.min(most, credit.get());
  }

  /** Whether garbage is worth anything, and above this share of what is allowed. */
  private boolean hasGarbage(double share) {
    return garbage() > Math.max(WORTHWHILE, share * allowedGarbage());
  }

  /** Bytes of merged files that are neither live segments nor their index entries, and can be had by moving these. */
  long garbage() {
    return context.index().garbage(this::isWorthMoving);
  }

  /**
   * Whether a file goes once nothing lives in it any more. What a fork reads stays in any case; and what lives in a
   * reference file is in other checkpoints.
   */
  private boolean isWorthMoving(MergedFile file) {
    return !file.isReference() && !pins.hold(file);
  }

  private double allowedGarbage() {
    return (context.options().maxSpaceAmplification() - 1) * context.index().liveBytes();
  }

  private boolean moveOut(RelocationMarkers.Marker marker) throws IOException {
    double excess = tooMuchGarbage();
    long budget = budget();
    boolean moved = false;
    for (Candidate candidate : candidates()) {
      if (excess <= 0 || candidate.bytes > budget || !marker.isTimely()) {
        break;
      }
      if (relocate(candidate, marker)) {
        moved = true;
        budget -= candidate.bytes;
        excess -= candidate.gain();
      }
    }
    return moved;
  }

  /**
   * A file that is mostly garbage.
   *
   * @param segments live ones of it that this process may move
   * @param bytes of them, with what their index entries take
   * @param liveBytes of all live segments in the file, likewise
   */
  private record Candidate(MergedFile file, List<Segment> segments, long bytes, long liveBytes) {
    /** Bytes that are reclaimed by moving these, where the owners of the others move theirs. */
    double gain() {
      return (double) (file.size() - liveBytes) * bytes / Math.max(1, liveBytes);
    }

    /** Copied bytes per reclaimed byte. */
    double cost() {
      return (double) liveBytes / Math.max(1, file.size() - liveBytes);
    }
  }

  /** Cheapest first; files in which too little would be won are left to die by themselves. */
  private List<Candidate> candidates() {
    double maxCost = isUrgent() ? MAX_URGENT_COST : MAX_COST;
    List<Candidate> found = new ArrayList<>();
    for (MergedFile file : context.index().files()) {
      if (context.isClosed(file) && file.wholeIndexRead() && !file.isIndexOnly() && isWorthMoving(file)) {
        List<Segment> live = context.index().liveSegments(file);
        List<Segment> own = live.stream()
            .filter(s -> serves.test(s.path()) && s.entry().generation() < MAX_GENERATION)
            .toList();
        Candidate candidate = new Candidate(file, own, bytes(own), bytes(live));
        if (!own.isEmpty() && candidate.cost() < maxCost) {
          found.add(candidate);
        }
      }
    }
    found.sort(Comparator.comparingDouble(Candidate::cost));
    return found;
  }

  private static long bytes(List<Segment> segments) {
    return segments.stream().mapToLong(Segment::lengthWithEntries).sum();
  }

  /** Whether all of a file's segments that were to be moved have been. */
  private boolean relocate(Candidate candidate, RelocationMarkers.Marker marker) throws IOException {
    List<Commit.Item> chunk = new ArrayList<>();
    try {
      long bytes = 0;
      for (Segment segment : candidate.segments) {
        PayloadBuffer payload = new PayloadBuffer(localSpace, context.options().bufferMemory());
        chunk.add(new Commit.Item(segment.path(), payload, segment.entry()));
        try {
          reader.checkAlways(segment, reader.copy(segment, payload));
        } catch (StateStoreFilesException e) {
          LOG.warn("{} stays as it is: a live segment in it cannot be read", candidate.file, e);
          return false;
        }
        bytes += segment.length();
        if (bytes >= CHUNK) {
          if (!flush(chunk, marker)) {
            return false;
          }
          bytes = 0;
        }
      }
      if (!flush(chunk, marker)) {
        return false;
      }
      context.metrics().relocated(candidate.segments.size(), candidate.bytes);
      credit.updateAndGet(known -> Math.max(-context.options().maxFileSize(), known - candidate.bytes));
      LOG.debug("Moved {} live segments ({} bytes) out of {} ({} bytes)", candidate.segments.size(), candidate.bytes,
          candidate.file, candidate.file.size());
      return true;
    } finally {
      chunk.forEach(i -> i.payload().close());
    }
  }

  private boolean flush(List<Commit.Item> chunk, RelocationMarkers.Marker marker) throws IOException {
    if (!marker.isTimely()) {
      return false;
    }
    if (!chunk.isEmpty()) {
      marker.write(() -> writer.write(List.copyOf(chunk)));
      chunk.forEach(i -> i.payload().close());
      chunk.clear();
    }
    return true;
  }
}
