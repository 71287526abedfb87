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

  private final LogContext context;
  private final MergedFile file;
  private final FSDataOutputStream out;
  private final OutputStream buffered;
  private final boolean canFlush;
  private final MergedFileWriter writer;
  private final long createdNanos = System.nanoTime();
  private boolean finished;
  private long goodTrailer;
  private long lastAppendNanos = System.nanoTime();
  private long lastAppendMs;

  private OpenFile(LogContext context, MergedFile file, FSDataOutputStream out, Header header) throws IOException {
    this.context = context;
    this.file = file;
    this.out = out;
    this.buffered = new BufferedOutputStream(out, BUFFER);
    this.canFlush = Storage.canFlush(out);
    this.writer = new MergedFileWriter(buffered, header);
    this.lastAppendMs = context.nowMs();
  }

  static OpenFile create(LogContext context) throws IOException {
    long now = context.nowMs();
    String name = context.nextFileName(now);
    MergedFile file = new MergedFile(name, MergedFile.Writer.THIS_PROCESS, now);
    // Known before it exists: a refresh that lists it in between must not take it for another process's.
    context.index().addIfAbsent(file);
    try {
      FSDataOutputStream out = context.storage().create(name);
      LOG.info("Opened merged file {} of {}", name, context.checkpoint());
      return new OpenFile(context, file, out, Header.of(context.writerId(), now, context.headerMeta()));
    } catch (IOException | RuntimeException | Error e) {
      context.index().remove(file);
      throw e;
    }
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

  /** By the clock that says more: a monotonic clock may stand still while the machine sleeps. */
  long idleMs(LogContext context) {
    return Math.max((System.nanoTime() - lastAppendNanos) / 1_000_000, context.nowMs() - lastAppendMs);
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
      writer.endGroupAndSeal(entries, stamp);
      buffered.flush();
      out.close();
      finished = true;
    }
    goodTrailer = writer.position() - Trailer.SIZE;
    lastAppendNanos = System.nanoTime();
    lastAppendMs = context.nowMs();
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
