package io.pyspark.statestore.read;

import io.pyspark.statestore.ShellWord;
import io.pyspark.statestore.StateFileNotFoundException;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Segment;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.util.List;
import java.util.stream.Collectors;
import java.util.zip.CRC32C;

/** Reads the bytes of segments, checks each that is read whole (rule 9), and says what is wrong where it cannot. */
public final class SegmentReader {
  /** Bytes of one read at most. On an object store each is a request, which takes as long as reading a few MiB. */
  public static final int CHUNK = 8 << 20;

  /** Segments of up to so many bytes are read into memory at once, which also serves seeks. */
  public static final int WHOLE = 4 << 20;

  /** An error names at most so many torn files. */
  private static final int NAMED = 5;

  /** Refreshes and finds a segment again, because its file is gone (rule 5). */
  public interface Finder {
    Segment findAfterRefresh(String path) throws IOException;
  }

  private final Storage storage;
  private final FileHandles handles;
  private final Finder finder;

  public SegmentReader(Storage storage, FileHandles handles, Finder finder) {
    this.storage = storage;
    this.handles = handles;
    this.finder = finder;
  }

  /** Reads a part of a segment; returns the segment at the place where it was read, as it may have been relocated. */
  public Segment readAt(Segment segment, long position, byte[] buffer, int offset, int length) throws IOException {
    try {
      handles.readFully(segment.holder(), segment.entry().offset() + position, buffer, offset, length);
      return segment;
    } catch (EOFException e) {
      throw damaged(segment, "are not all there: the file was cut off", e);
    } catch (FileNotFoundException e) {
      Segment moved = finder.findAfterRefresh(segment.path());
      if (moved == null || moved.holder() == segment.holder()) {
        throw missing(segment, e);
      }
      if (moved.length() != segment.length() || moved.entry().crc32c() != segment.entry().crc32c()) {
        // Not relocated but written anew, so what was read of the old one does not fit.
        throw missing(segment, e);
      }
      handles.readFully(moved.holder(), moved.entry().offset() + position, buffer, offset, length);
      return moved;
    }
  }

  /** Reads a whole segment of at most {@link #WHOLE} bytes. */
  public byte[] read(Segment segment) throws IOException {
    byte[] bytes = new byte[Math.toIntExact(segment.length())];
    Segment from = readAt(segment, 0, bytes, 0, bytes.length);
    CRC32C crc = new CRC32C();
    crc.update(bytes, 0, bytes.length);
    check(from, crc);
    return bytes;
  }

  /**
   * Copies a whole segment. What was written to {@code out} is good only if this returns.
   *
   * @return the checksum of what was copied
   */
  public int copy(Segment segment, OutputStream out) throws IOException {
    byte[] buffer = new byte[(int) Math.min(CHUNK, Math.max(1, segment.length()))];
    CRC32C crc = new CRC32C();
    Segment from = segment;
    for (long position = 0; position < segment.length(); ) {
      int n = (int) Math.min(buffer.length, segment.length() - position);
      from = readAt(from, position, buffer, 0, n);
      crc.update(buffer, 0, n);
      out.write(buffer, 0, n);
      position += n;
    }
    check(from, crc);
    return (int) crc.getValue();
  }

  public void check(Segment segment, CRC32C crc) throws StateStoreFilesException {
    check(segment, (int) crc.getValue());
  }

  /**
   * Compares the checksum of what was read with that of what was written.
   *
   * @throws StateStoreFilesException PSS_CORRUPT_SEGMENT where they differ
   */
  public void check(Segment segment, int crc32c) throws StateStoreFilesException {
    if (crc32c != segment.entry().crc32c()) {
      throw damaged(segment, "have another checksum than was written", null);
    }
  }

  /**
   * The error for a logical file that none of the merged files has. Spark's own advice in that case is to clear the
   * checkpoint, so this one says what to do instead.
   */
  public StateFileNotFoundException notFound(String path, List<MergedFile> files) {
    return new StateFileNotFoundException(
        storage.checkpoint()
            + "/state/"
            + path
            + " does not exist, and none of the "
            + files.size()
            + " merged files in "
            + storage.directory()
            + " has it. "
            + ignored(files)
            + "If the query needs it, a merged file was damaged, cut off or deleted: look with"
            + " pyspark-statestore verify "
            + ShellWord.of(storage.checkpoint())
            + ", restore that file from a copy, and do not clear the"
            + " checkpoint.");
  }

  private static String ignored(List<MergedFile> files) {
    List<MergedFile> cut = files.stream().filter(file -> file.ignoredBytes() > 0).toList();
    if (cut.isEmpty()) {
      return "";
    }
    String named =
        cut.stream()
            .limit(NAMED)
            .map(
                file ->
                    file.name()
                        + " ("
                        + file.ignoredBytes()
                        + " bytes from offset "
                        + (file.size() - file.ignoredBytes())
                        + " on)")
            .collect(Collectors.joining(", "));
    return "Ignored as torn, because no whole group ends there: "
        + named
        + (cut.size() > NAMED ? " and the ends of " + (cut.size() - NAMED) + " more" : "")
        + ". ";
  }

  private StateStoreFilesException damaged(Segment segment, String how, EOFException cause) {
    return new StateStoreFilesException(
        Id.PSS_CORRUPT_SEGMENT,
        "state/"
            + segment.path()
            + " of checkpoint "
            + storage.checkpoint()
            + " is damaged:"
            + " its "
            + segment.length()
            + " bytes in "
            + segment.holder().name()
            + " at offset "
            + segment.entry().offset()
            + " "
            + how
            + ". Restore that file from a copy, or restart the query from an"
            + " earlier batch whose state is whole.",
        cause);
  }

  private StateStoreFilesException missing(Segment segment, FileNotFoundException cause) {
    if (segment.holder().isForeign()) {
      return new StateStoreFilesException(
          Id.PSS_FOREIGN_FILE_MISSING,
          "state/"
              + segment.path()
              + " of the fork "
              + storage.checkpoint()
              + " is in "
              + segment.holder().name()
              + " at offset "
              + segment.entry().offset()
              + ", a file of the checkpoint that"
              + " it was forked from, and that file does not exist. Restore it from a copy, or make the fork anew;"
              + " compact(localize=True) or mode='copy' makes a fork that needs no other checkpoint.",
          cause);
    }
    return new StateStoreFilesException(
        Id.PSS_MISSING_SEGMENT,
        "state/"
            + segment.path()
            + " of checkpoint "
            + storage.checkpoint()
            + " should be in "
            + segment.holder().name()
            + " at offset "
            + segment.entry().offset()
            + ", but that file does not exist, and no other has it. Restore the file from a copy.",
        cause);
  }
}
