package io.pyspark.statestore.log;

import io.pyspark.statestore.StateStoreFilesException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Moves live segments out of closed files that are mostly {@link Garbage}, so that these can be unlinked. A copy keeps
 * its key and raises its generation (rule 5), so whatever happens to its path meanwhile still wins or kills as before.
 *
 * <p>Each process moves the segments of the partitions that it serves; no process has to be elected.
 */
final class Relocator {
  private static final Logger LOG = LoggerFactory.getLogger(Relocator.class);
  /** Bytes of one commit. */
  private static final long CHUNK = 4 << 20;

  private final Garbage garbage;
  private final Sight sight;
  private final RelocationMarkers markers;
  private final LogMetrics metrics;
  private final SegmentReader reader;
  private final Buffers buffers;
  private final Writer writer;

  /** Makes an empty buffer for a copy. */
  interface Buffers {
    PayloadBuffer create();
  }

  /** Makes copies durable. */
  interface Writer {
    void write(List<Commit.Item> items) throws IOException;
  }

  /** Sees what lives after a marker was made (rule 5). */
  interface Sight {
    /** Makes the index as new as this call. */
    void look() throws IOException;

    /** Whether a file still exists, where {@link #look} has not asked the file system. */
    boolean exists(MergedFile file) throws IOException;
  }

  Relocator(
      Garbage garbage,
      Sight sight,
      RelocationMarkers markers,
      LogMetrics metrics,
      SegmentReader reader,
      Buffers buffers,
      Writer writer) {
    this.garbage = garbage;
    this.sight = sight;
    this.markers = markers;
    this.metrics = metrics;
    this.reader = reader;
    this.buffers = buffers;
    this.writer = writer;
  }

  /**
   * Makes one pass, which copies at most a {@code maxFileSize}.
   *
   * @param plan says what to move, by what the index knows at the moment
   * @return whether anything was moved
   */
  boolean run(Supplier<Garbage.Plan> plan) throws IOException {
    if (!plan.get().callsForMoving()) {
      return false;
    }
    RelocationMarkers.Marker marker = markers.make();
    try {
      // Only what is found to live after the marker was made may be copied (rule 5).
      sight.look();
      return moveOut(plan.get(), marker);
    } finally {
      marker.end();
    }
  }

  private boolean moveOut(Garbage.Plan plan, RelocationMarkers.Marker marker) throws IOException {
    double excess = plan.excess();
    long budget = plan.budget();
    boolean moved = false;
    for (Garbage.Candidate candidate : plan.candidates()) {
      if (excess <= 0 || candidate.bytes() > budget || !marker.isTimely()) {
        break;
      }
      if (sight.exists(candidate.file()) && relocate(candidate, marker)) {
        moved = true;
        budget -= candidate.bytes();
        excess -= candidate.gain();
      }
    }
    return moved;
  }

  /** Whether all segments of a candidate were moved. */
  private boolean relocate(Garbage.Candidate candidate, RelocationMarkers.Marker marker) throws IOException {
    List<Commit.Item> chunk = new ArrayList<>();
    try {
      long bytes = 0;
      for (Segment segment : candidate.segments()) {
        PayloadBuffer payload = buffers.create();
        chunk.add(new Commit.Item(segment.path(), payload, segment));
        try {
          reader.checkAlways(segment, reader.copy(segment, payload));
        } catch (StateStoreFilesException e) {
          LOG.warn("{} stays as it is: a live segment in it cannot be read", candidate.file(), e);
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
      metrics.relocated(candidate.segments().size(), candidate.bytes());
      garbage.moved(candidate.bytes());
      LOG.debug("Moved {} live segments ({} bytes) out of {} ({} bytes)", candidate.segments().size(),
          candidate.bytes(), candidate.file(), candidate.size());
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
