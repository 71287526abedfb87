package io.pyspark.statestore.log;

import io.pyspark.statestore.StateStoreFilesException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
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
  /** Garbage is fought from this share of what {@code maxSpaceAmplification} allows, down to the other one. */
  private static final double START = 0.4;

  private static final double STOP = 0.25;
  /** Less garbage than this is left alone, in bytes. */
  private static final long WORTHWHILE = 16 << 10;
  /** One commit's worth, in bytes. */
  private static final long CHUNK = 4 << 20;

  private final LogContext context;
  private final SegmentReader reader;
  private final LocalSpace localSpace;
  private final Predicate<String> serves;
  private final Writer writer;

  /** Makes relocated segments durable. */
  interface Writer {
    void write(List<Commit.Item> items) throws IOException;
  }

  Relocator(
      LogContext context, SegmentReader reader, LocalSpace localSpace, Predicate<String> serves, Writer writer) {
    this.context = context;
    this.reader = reader;
    this.localSpace = localSpace;
    this.serves = serves;
    this.writer = writer;
  }

  /** One round, bounded to a file's size of copied bytes. */
  void run() throws IOException {
    long garbage = context.index().physicalBytes() - context.index().liveBytesWithEntries();
    double allowed = (context.options().maxSpaceAmplification() - 1) * context.index().liveBytes();
    if (garbage <= Math.max(WORTHWHILE, START * allowed)) {
      return;
    }
    long budget = context.options().maxFileSize();
    for (Candidate candidate : candidates()) {
      if (garbage <= STOP * allowed || candidate.liveBytes > budget) {
        return;
      }
      try {
        relocate(candidate);
        budget -= candidate.liveBytes;
        garbage -= candidate.gain();
      } catch (StateStoreFilesException e) {
        LOG.warn("{} stays as it is: a live segment in it cannot be read", candidate.file, e);
      }
    }
  }

  /**
   * A file that could be emptied.
   *
   * @param live segments of it that this process may move
   * @param liveBytes of them, with what their index entries take
   */
  private record Candidate(MergedFile file, List<Segment> live, long liveBytes) {
    /** Reclaimed bytes. */
    long gain() {
      return file.size() - liveBytes;
    }

    /** Copied bytes per reclaimed byte. */
    double cost() {
      return (double) liveBytes / Math.max(1, gain());
    }
  }

  /** Cheapest first; files in which less than a quarter would be won are left to die by themselves. */
  private List<Candidate> candidates() {
    List<Candidate> found = new ArrayList<>();
    for (MergedFile file : context.index().files()) {
      boolean closed = file.isClosed(context.nowMs(), context.options().closedAfterMs());
      if (closed && file.wholeIndexRead() && !file.isIndexOnly()) {
        List<Segment> live = context.index().liveSegments(file);
        long bytes = live.stream().mapToLong(Segment::lengthWithEntries).sum();
        Candidate candidate = new Candidate(file, live, bytes);
        if (candidate.cost() < 3 && live.stream().allMatch(s -> serves.test(s.path()))) {
          found.add(candidate);
        }
      }
    }
    found.sort(Comparator.comparingDouble(Candidate::cost));
    return found;
  }

  private void relocate(Candidate candidate) throws IOException {
    List<Commit.Item> chunk = new ArrayList<>();
    try {
      long bytes = 0;
      for (Segment segment : candidate.live) {
        PayloadBuffer payload = new PayloadBuffer(localSpace, context.options().bufferMemory());
        chunk.add(new Commit.Item(segment.path(), payload, segment.entry()));
        reader.checkAlways(segment, reader.copy(segment, payload));
        bytes += segment.length();
        if (bytes >= CHUNK) {
          flush(chunk);
          bytes = 0;
        }
      }
      flush(chunk);
      context.metrics().relocated(candidate.live.size(), candidate.liveBytes);
      LOG.debug("Moved {} live segments ({} bytes) out of {} ({} bytes)", candidate.live.size(), candidate.liveBytes,
          candidate.file, candidate.file.size());
    } finally {
      chunk.forEach(i -> i.payload().close());
    }
  }

  private void flush(List<Commit.Item> chunk) throws IOException {
    if (!chunk.isEmpty()) {
      writer.write(List.copyOf(chunk));
      chunk.forEach(i -> i.payload().close());
      chunk.clear();
    }
  }
}
