package io.pyspark.statestore.write;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.Header;
import io.pyspark.statestore.format.MergedFileWriter;
import io.pyspark.statestore.format.Trailer;
import io.pyspark.statestore.index.HybridClock;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Tombstone;
import java.io.BufferedOutputStream;
import java.io.FileNotFoundException;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import java.util.zip.CRC32C;
import java.util.zip.CheckedOutputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A merged file that this process writes. A failed write or flush ends it: the {@link Lane} leaves it (rule 1). */
public final class OpenFile {
  private static final Logger LOG = LoggerFactory.getLogger(OpenFile.class);
  private static final int BUFFER = 64 * 1024;

  /** A group that becomes shorter than its front says is filled up with so many zeros at most. */
  private static final long MAX_PADDING = 256 * 1024;

  private final Factory made;
  private final MergedFile file;
  private final FSDataOutputStream out;
  private final OutputStream buffered;
  private final boolean canFlush;
  private final MergedFileWriter writer;
  private final long createdNanos = System.nanoTime();
  private boolean finished;
  private boolean nameIsKept;
  private Reporter.Receipt lastReport = Reporter.Receipt.NONE;
  private long goodTrailer;
  private Clocks.Stopwatch sinceAppend = new Clocks.Stopwatch();

  private OpenFile(Factory made, MergedFile file, FSDataOutputStream out, Header header) throws IOException {
    this.made = made;
    this.file = file;
    this.out = out;
    this.buffered = new BufferedOutputStream(out, BUFFER);
    this.canFlush = made.storage.canFlush(out);
    this.writer = new MergedFileWriter(buffered, header);
  }

  /**
   * Makes this process's files of one checkpoint.
   *
   * @param refreshNumber number of the newest refresh that has begun
   * @param reporter hears of each group before its commits are acknowledged
   */
  public record Factory(
      Storage storage,
      Index index,
      Rules rules,
      HybridClock clock,
      WriterIdentity writer,
      LongSupplier refreshNumber,
      Reporter reporter) {
    OpenFile create() throws IOException {
      long now = Clocks.wallMs();
      String name = writer.nextFileName(now, Storage.SUFFIX);
      MergedFile file = new MergedFile(name, MergedFile.Writer.THIS_PROCESS, rules.now());
      // Known before it exists: a refresh that lists it in between must not take it for another process's.
      index.addIfAbsent(file);
      FSDataOutputStream out = null;
      OpenFile made = null;
      try {
        Header header = writer.header(now);
        out = storage.create(name);
        made = new OpenFile(this, file, out, header);
      } finally {
        // For every failure, also checked exceptions that Scala code does not declare.
        if (made == null) {
          discard(file, out);
        }
      }
      LOG.info("Opened merged file {} of {}", name, storage.checkpoint());
      return made;
    }

    /** Removes a file that could not be made. A failed create may have made it, and holds its lease then. */
    private void discard(MergedFile file, FSDataOutputStream out) {
      try {
        if (out != null) {
          out.close();
        }
        storage.delete(file.name());
      } catch (IOException | RuntimeException | Error e) {
        LOG.debug("{} of {} could neither be made nor removed", file, storage.checkpoint(), e);
      }
      // Last: a refresh that lists it in between must not take it for another process's.
      index.remove(file);
    }
  }

  /** Removes the file, in which there is no group. */
  void discard() {
    made.discard(file, out);
  }

  /** Whether the index no longer knows the file: its checkpoint was deleted, as a refresh has found. */
  boolean isForgotten() {
    return made.index.file(file.name()) != file;
  }

  Path path() {
    return made.storage.path(file.name());
  }

  /** Whether a group can be made durable before the file is closed. */
  boolean canFlush() {
    return canFlush;
  }

  long size() {
    return writer.position();
  }

  /** Whether the file was closed with its last group. */
  boolean isFinished() {
    return finished;
  }

  /** How long ago it was created. */
  long ageMs() {
    return (System.nanoTime() - createdNanos) / 1_000_000;
  }

  /**
   * How long nothing was appended, by the clock that says more: sealing early does no harm, appending too late does.
   */
  long idleMs() {
    return sinceAppend.elapsedMs();
  }

  /**
   * Writes a group's front, which says how long the group is going to be.
   *
   * @param tombstones that wait, besides those of the commits
   */
  void beginGroup(List<Commit> commits, List<Tombstone> tombstones) throws IOException {
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

  /** Whether so much was taken back since the front that filling the group up would cost more than another file. */
  boolean isMuchTooShort(List<Entry> entries) {
    return writer.shortfall(entries.stream().map(Entry::path).toList()) > MAX_PADDING;
  }

  /** Ends a group of which nothing is left, if its front was written. */
  void endEmptyGroup() throws IOException {
    if (writer.hasAnnounced()) {
      writer.endGroup(List.of(), made.clock.next());
    }
  }

  /**
   * Appends a payload to the group that is being written.
   *
   * @param withdrawn whether the commit was withdrawn; asked before each block
   * @throws WithdrawnException where it was; what was written of it is garbage
   */
  Entry append(Commit.Item item, BooleanSupplier withdrawn) throws IOException {
    CRC32C crc = new CRC32C();
    long length = item.payload().length();
    long offset =
        writer.payload(
            length, target -> item.payload().writeTo(new Stoppable(new CheckedOutputStream(target, crc), withdrawn)));
    int crc32c = (int) crc.getValue();
    return item.copied() != null
        ? item.copied().copiedEntry(crc32c, offset)
        : new Entry(
            Entry.PUT,
            Entry.typeOf(item.path()),
            0,
            crc32c,
            item.stamp() > 0 ? item.stamp() : made.clock.next(),
            made.writer.id(),
            offset,
            length,
            0,
            item.path());
  }

  /**
   * Ends the group and makes it durable and visible (rule 1).
   *
   * @return what becomes of the group's report. Before it has come, nothing may be appended to the file
   */
  Reporter.Receipt commit(List<Entry> entries, boolean hsync) throws IOException {
    long stamp = made.clock.next();
    if (canFlush) {
      writer.endGroup(entries, stamp);
      flush(hsync);
      if (idleMs() > made.rules.options().closedAfterMs() / 2) {
        // Others may have counted the file as closed, and unlinked it (rule 7).
        throw new IOException("Writing and flushing a group took " + idleMs() + " ms");
      }
    } else {
      // This may take any time: others cannot count a file as closed that is not there yet, and a relocation renews its
      // marker meanwhile. On Azure a file is there, empty, as soon as it is created.
      writer.endGroupAndSeal(entries, stamp);
      buffered.flush();
      if (idleMs() > made.rules.options().closedAfterMs() / 2 && made.storage.exists(file.name())) {
        throw new IOException("Writing a group took " + idleMs() + " ms, and others may have unlinked the empty file");
      }
      made.storage.close(out, file.name(), writer.position());
      finished = true;
    }
    goodTrailer = writer.position() - Trailer.SIZE;
    sinceAppend = new Clocks.Stopwatch();
    file.appended(writer.position(), stamp, made.refreshNumber.getAsLong());
    if (!made.index.apply(file, entries)) {
      throw new FileNotFoundException(path() + " was deleted while it was written");
    }
    if (finished) {
      // Only now, because a closed file without live segments would be unlinked.
      file.sealed();
    }
    // Last: once others know the file, they may unlink it. A report that fails is like a flush that fails: nobody can
    // say whether the group counts.
    lastReport = made.reporter.report(file, goodTrailer, stamp, finished, entries);
    return lastReport;
  }

  /** What becomes of the last group's report. Before it has come, nothing may be appended; where it fails, ever. */
  Reporter.Receipt lastReport() {
    return lastReport;
  }

  /** A commit was withdrawn while its payload was being written. */
  static final class WithdrawnException extends IOException {
    private static final long serialVersionUID = 1L;

    WithdrawnException() {
      super("withdrawn");
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
        made.storage.keepNames();
        nameIsKept = true;
      }
    } else {
      out.hflush();
    }
  }

  void seal() throws IOException {
    long stamp = made.clock.next();
    writer.seal(stamp);
    flush(true);
    out.close();
    finished = true;
    file.appended(writer.position(), stamp, made.refreshNumber.getAsLong());
    file.sealed();
    try {
      made.reporter.report(file, goodTrailer, stamp, true, List.of()).await();
    } catch (IOException e) {
      LOG.debug(
          "{} is sealed, which the index service does not know; it counts as closed after closedAfter", path(), e);
    }
  }

  /** Leaves the file unsealed. The next refresh reads back what of the last group has reached it. */
  void leave() {
    try {
      out.close();
    } catch (IOException | RuntimeException | Error e) {
      // Hadoop's local file system reports a full disk as an Error, once more for what is still in its buffer.
      LOG.info("Could not close {}, to which a write has failed", path(), e);
    }
    made.storage.release(file.name());
    // Only now, because closing may make more of the last group visible.
    file.left(goodTrailer);
    made.reporter.left(file);
  }
}
