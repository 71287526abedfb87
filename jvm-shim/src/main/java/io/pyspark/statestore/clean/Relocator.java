package io.pyspark.statestore.clean;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.IndexSource;
import io.pyspark.statestore.learn.RelocationMarkers;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.read.SegmentReader;
import io.pyspark.statestore.write.Commit;
import io.pyspark.statestore.write.PayloadBuffer;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongConsumer;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Moves live segments out of closed files that are mostly {@link Garbage}, or small and too many, so that these can be
 * unlinked. A copy keeps its key and raises its generation (rule 5), so whatever happens to its path meanwhile still
 * wins or kills as before.
 *
 * <p>Each process moves the segments of the partitions that it serves; no process has to be elected.
 */
final class Relocator {
  private static final Logger LOG = LoggerFactory.getLogger(Relocator.class);

  /** Bytes of one commit. */
  private static final long CHUNK = 4 << 20;

  private final Garbage garbage;
  private final IndexSource source;
  private final Storage storage;
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

  Relocator(
      Garbage garbage,
      IndexSource source,
      Storage storage,
      RelocationMarkers markers,
      LogMetrics metrics,
      SegmentReader reader,
      Buffers buffers,
      Writer writer) {
    this.garbage = garbage;
    this.source = source;
    this.storage = storage;
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
    if (!plan.get().callsForMoving() && !plan.get().callsForJoining()) {
      return false;
    }
    RelocationMarkers.Marker marker = markers.make();
    try {
      // Only what is found to live after the marker was made may be copied (rule 5).
      boolean allExist = source.refreshForRelocation();
      Garbage.Plan now = plan.get();
      boolean moved = now.callsForMoving() && moveOut(now, marker, allExist);
      return now.callsForJoining() && join(now, marker, allExist) || moved;
    } finally {
      marker.end();
    }
  }

  private boolean moveOut(Garbage.Plan plan, RelocationMarkers.Marker marker, boolean allExist) throws IOException {
    double excess = plan.excess();
    long budget = plan.budget();
    try (Batch batch = new Batch(marker, CHUNK, garbage::moved)) {
      for (Garbage.Candidate candidate : plan.candidates()) {
        if (excess <= 0 || candidate.bytes() > budget || !marker.isTimely()) {
          break;
        }
        if ((allExist || storage.exists(candidate.file().name())) && batch.add(candidate)) {
          budget -= candidate.bytes();
          excess -= candidate.gain();
        }
      }
      return batch.end();
    }
  }

  /** Joins small files, many in one group, which may become a file of its own. */
  private boolean join(Garbage.Plan plan, RelocationMarkers.Marker marker, boolean allExist) throws IOException {
    try (Batch batch = new Batch(marker, garbage.largestToJoin(), garbage::joined)) {
      for (Garbage.Candidate candidate : plan.joinable()) {
        if (allExist || storage.exists(candidate.file().name())) {
          batch.add(candidate);
        }
      }
      return batch.end();
    }
  }

  /** Copies that are written together, of as many files as that takes: on an object store each group is a file. */
  private final class Batch implements AutoCloseable {
    private final RelocationMarkers.Marker marker;
    private final long most;
    private final LongConsumer moved;
    private final List<Commit.Item> copies = new ArrayList<>();
    private long bytes;
    private boolean any;

    /**
     * @param most bytes of a group
     * @param moved hears how many bytes were moved
     */
    Batch(RelocationMarkers.Marker marker, long most, LongConsumer moved) {
      this.marker = marker;
      this.most = most;
      this.moved = moved;
    }

    /** Copies all segments of a candidate; returns false where one cannot be read or there is no time. */
    boolean add(Garbage.Candidate candidate) throws IOException {
      for (Segment segment : candidate.segments()) {
        if (bytes >= most) {
          flush();
        }
        if (!marker.isTimely()) {
          return false;
        }
        PayloadBuffer payload = buffers.create();
        Commit.Item copy = new Commit.Item(segment.path(), payload, segment);
        copies.add(copy);
        try {
          reader.check(segment, reader.copy(segment, payload));
        } catch (StateStoreFilesException e) {
          copies.remove(copy);
          payload.close();
          LOG.warn(
              "{} stays as it is: a live segment in it cannot be read. What to do: pyspark-statestore verify"
                  + " says what is damaged",
              candidate.file(),
              e);
          return false;
        }
        bytes += segment.lengthWithEntries();
      }
      LOG.debug(
          "Moves {} live segments ({} bytes) out of {} ({} bytes)",
          candidate.segments().size(),
          candidate.bytes(),
          candidate.file(),
          candidate.size());
      return true;
    }

    /** Writes what is left; returns whether anything was moved. */
    boolean end() throws IOException {
      flush();
      return any;
    }

    private void flush() throws IOException {
      if (copies.isEmpty() || !marker.isTimely()) {
        return;
      }
      marker.write(() -> writer.write(List.copyOf(copies)));
      metrics.relocated(copies.size(), bytes);
      moved.accept(bytes);
      any = true;
      close();
    }

    @Override
    public void close() {
      copies.forEach(copy -> copy.payload().close());
      copies.clear();
      bytes = 0;
    }
  }
}
