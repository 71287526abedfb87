package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.Header;
import io.pyspark.statestore.format.MergedFileWriter;
import io.pyspark.statestore.format.Trailer;
import java.io.BufferedOutputStream;
import java.io.FileNotFoundException;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.zip.CRC32C;
import java.util.zip.CheckedOutputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A merged file while this process writes it. */
final class OpenFile {
  private static final Logger LOG = LoggerFactory.getLogger(OpenFile.class);
  private static final int BUFFER = 64 * 1024;
  /** Bytes of a group that was announced longer that are filled up with zeros. */
  private static final long MAX_PADDING = 256 * 1024;

  private final LogContext context;
  private final MergedFile file;
  private final FSDataOutputStream out;
  private final OutputStream buffered;
  private final boolean canFlush;
  private final MergedFileWriter writer;
  private final long createdNanos = System.nanoTime();
  private boolean finished;
  private boolean nameIsKept;
  private long goodTrailer;
  private Clocks.Stopwatch sinceAppend = new Clocks.Stopwatch();

  private OpenFile(LogContext context, MergedFile file, FSDataOutputStream out, Header header) throws IOException {
    this.context = context;
    this.file = file;
    this.out = out;
    this.buffered = new BufferedOutputStream(out, BUFFER);
    this.canFlush = Storage.canFlush(out);
    this.writer = new MergedFileWriter(buffered, header);
  }

  static OpenFile create(LogContext context) throws IOException {
    long now = context.nowMs();
    String name = context.nextFileName(now);
    MergedFile file = new MergedFile(name, MergedFile.Writer.THIS_PROCESS, context.now());
    // Known before it exists: a refresh that lists it in between must not take it for another process's.
    context.index().addIfAbsent(file);
    FSDataOutputStream out = null;
    OpenFile made = null;
    try {
      Header header = Header.of(context.writerId(), now, context.headerMeta());
      out = context.storage().create(name);
      made = new OpenFile(context, file, out, header);
    } finally {
      // Whatever goes wrong, of checked exceptions too, which Scala does not declare.
      if (made == null) {
        discard(context, file, out);
      }
    }
    LOG.info("Opened merged file {} of {}", name, context.checkpoint());
    return made;
  }

  /** Of a file that could not be made nothing stays; a failed create may have made it, and holds its lease then. */
  private static void discard(LogContext context, MergedFile file, FSDataOutputStream out) {
    try {
      if (out != null) {
        out.close();
      }
      context.storage().delete(file.name());
    } catch (IOException | RuntimeException | Error e) {
      LOG.debug("{} of {} could not be made, nor removed", file, context.checkpoint(), e);
    }
    // Last: a refresh that lists it in between must not take it for another process's.
    context.index().remove(file);
  }

  MergedFile file() {
    return file;
  }

  Path path() {
    return context.storage().path(file.name());
  }

  /** Whether groups can be made durable before the file is closed. */
  boolean canFlush() {
    return canFlush;
  }

  long size() {
    return writer.position();
  }

  /** Whether the file was ended with its last group. */
  boolean isFinished() {
    return finished;
  }

  /** Since it was created. */
  long ageMs() {
    return (System.nanoTime() - createdNanos) / 1_000_000;
  }

  /** By the clock that says more: to seal early, or to fail a group, does no harm; to append too late would. */
  long idleMs(LogContext context) {
    return sinceAppend.elapsedMs();
  }

  /**
   * Begins a group with what it is going to hold.
   *
   * @param commits whose payloads and tombstones go into it
   * @param tombstones that go with them
   */
  void announce(List<Commit> commits, List<Tombstone> tombstones) throws IOException {
    List<String> paths = new ArrayList<>();
    long bytes = 0;
    for (Commit commit : commits) {
      commit.items().forEach(item -> paths.add(item.path()));
      commit.tombstones().forEach(tombstone -> paths.add(tombstone.path()));
      bytes += commit.length();
    }
    tombstones.forEach(tombstone -> paths.add(tombstone.path()));
    if (!paths.isEmpty()) {
      writer.announce(bytes, paths);
    }
  }

  /** Whether so much of what was announced was taken back that filling it up would cost more than another file. */
  boolean isMuchTooShort(List<Entry> entries) {
    return writer.shortfall(entries.stream().map(Entry::path).toList()) > MAX_PADDING;
  }

  /** Ends a group of which nothing is left, where one was announced. */
  void endEmptyGroup() throws IOException {
    if (writer.hasAnnounced()) {
      writer.endGroup(List.of(), context.clock().next());
    }
  }

  /**
   * Appends a payload to the group that is being written.
   *
   * @param withdrawn asked before each block: whether nobody wants it any more
   * @throws WithdrawnException where that is so; what was written of it is garbage
   */
  Entry append(Commit.Item item, BooleanSupplier withdrawn) throws IOException {
    CRC32C crc = new CRC32C();
    long length = item.payload().length();
    long offset = writer.payload(
        length, target -> item.payload().writeTo(new Stoppable(new CheckedOutputStream(target, crc), withdrawn)));
    Entry moved = item.moved();
    return new Entry(
        Entry.PUT,
        Entry.typeOf(item.path()),
        moved == null ? 0 : moved.generation() + 1,
        (int) crc.getValue(),
        moved == null ? context.clock().next() : moved.stamp(),
        moved == null ? context.writerId() : moved.writer(),
        offset,
        length,
        0,
        item.path());
  }

  /** Ends the group and makes it durable and visible (rule 1). */
  void commit(List<Entry> entries, boolean hsync) throws IOException {
    long stamp = context.clock().next();
    if (canFlush) {
      writer.endGroup(entries, stamp);
      flush(hsync);
      if (idleMs(context) > context.options().closedAfterMs() / 2) {
        // Others may have taken the file for closed, and unlinked it (rule 7).
        throw new IOException("Writing and flushing a group took " + idleMs(context) + " ms");
      }
    } else {
      // However long this takes: nobody can take a file for closed that is not there yet, and whoever copies keeps his
      // announcement up meanwhile (RelocationMarkers).
      writer.endGroupAndSeal(entries, stamp);
      buffered.flush();
      out.close();
      finished = true;
    }
    goodTrailer = writer.position() - Trailer.SIZE;
    sinceAppend = new Clocks.Stopwatch();
    file.appended(writer.position(), stamp, context.refreshNumber());
    if (!context.index().apply(file, entries)) {
      throw new FileNotFoundException(path() + " was deleted while it was written");
    }
    if (finished) {
      // Only now: a closed file without live segments would be cleaned.
      file.sealed();
    }
  }

  /** Stops a copy between two blocks. */
  private static final class Stoppable extends FilterOutputStream {
    private final BooleanSupplier withdrawn;

    Stoppable(OutputStream out, BooleanSupplier withdrawn) {
      super(out);
      this.withdrawn = withdrawn;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      if (withdrawn.getAsBoolean()) {
        throw new WithdrawnException();
      }
      out.write(bytes, offset, length);
    }
  }

  private void flush(boolean hsync) throws IOException {
    buffered.flush();
    if (hsync) {
      out.hsync();
      if (!nameIsKept) {
        context.storage().keepNames();
        nameIsKept = true;
      }
    } else {
      out.hflush();
    }
  }

  void seal() throws IOException {
    long stamp = context.clock().next();
    writer.seal(stamp);
    flush(true);
    out.close();
    finished = true;
    file.appended(writer.position(), stamp, context.refreshNumber());
    file.sealed();
  }

  /** Leaves the file as it is; what of the last group has reached it is read back at the next refresh. */
  void giveUp() {
    try {
      out.close();
    } catch (IOException | RuntimeException | Error e) {
      // Hadoop's local file system reports a full disk as an Error, once more for what is still in its buffer.
      LOG.warn("Could not close {}, which is given up", path(), e);
    }
    context.storage().release(file.name());
    // Only now: closing may make more of the last group visible.
    file.givenUp(goodTrailer);
  }
}
