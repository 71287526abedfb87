package io.pyspark.statestore.format;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Reads the index of a merged file: the last group whose checksums hold, then back along {@code previous}.
 *
 * <p>A merged file is input: nothing is allocated from a length in it before that length is known to fit.
 */
public final class MergedFileReader {
  /** One read of this size at the end serves most files. */
  static final int TAIL = 64 * 1024;

  /** Smaller files than this are read at once. */
  private static final int HEAD = 4096;

  private final RangeSource source;

  private MergedFileReader(RangeSource source) {
    this.source = source;
  }

  /**
   * What was read.
   *
   * @param header or null, where the writer died before its first flush
   * @param groups oldest first; with a cumulative group, that one and what follows it
   * @param validLength bytes up to the end of the last valid group, 0 where there is none
   * @param length bytes in the file; those after {@code validLength} are a torn tail and do not exist
   */
  public record Parsed(Header header, List<Group> groups, long validLength, long length) {
    public boolean isSealed() {
      return !groups.isEmpty() && groups.get(groups.size() - 1).trailer().isSealed();
    }
  }

  /** Reads the whole index of a file. */
  public static Parsed read(RangeSource source) throws IOException {
    return readSince(source, 0);
  }

  /**
   * Reads the groups that were added after a trailer that is known already.
   *
   * @param knownTrailer its offset, 0 to read everything
   */
  public static Parsed readSince(RangeSource source, long knownTrailer) throws IOException {
    return new MergedFileReader(source).parse(knownTrailer);
  }

  private Parsed parse(long knownTrailer) throws IOException {
    long length = source.length();
    Header header = readHeader(length);
    if (header == null) {
      return new Parsed(null, List.of(), 0, length);
    }
    Window window = new Window();
    Group last = lastGroup(header, length, window);
    List<Group> groups = new ArrayList<>();
    for (Group g = last; g != null && g.trailerOffset() > knownTrailer; g = previousOf(g, header, window)) {
      groups.add(g);
      if (g.trailer().isCumulative()) {
        break;
      }
    }
    Collections.reverse(groups);
    return new Parsed(header, groups, last == null ? 0 : last.end(), length);
  }

  private Header readHeader(long length) throws IOException {
    byte[] head = range(0, (int) Math.min(length, HEAD));
    Header header = Header.decode(source.name(), head);
    if (header == null && length > head.length) {
      header = Header.decode(source.name(), range(0, (int) Math.min(length, Header.MAX_LENGTH)));
    }
    return header;
  }

  /** Searches backwards for the last trailer whose checksums hold; what is after it does not exist. */
  private Group lastGroup(Header header, long length, Window window) throws IOException {
    long end = length;
    while (end - Trailer.SIZE >= header.length()) {
      long start = Math.max(header.length(), end - TAIL);
      window.load(start, end);
      // Index blocks of candidates may make the window move; the search goes on over what was loaded here.
      byte[] searched = window.bytes;
      for (int at = searched.length - Trailer.SIZE; at >= 0; at--) {
        Trailer trailer = Trailer.decode(searched, at, start + at);
        if (trailer == null || trailer.indexOffset() < header.length()) {
          continue;
        }
        byte[] index = window.range(trailer.indexOffset(), (int) trailer.indexLength());
        if (Checksum.crc32c(index, 0, index.length) == trailer.indexCrc()) {
          return group(start + at, trailer, index);
        }
      }
      if (start == header.length()) {
        return null;
      }
      end = start + Trailer.SIZE - 1;
    }
    return null;
  }

  private Group previousOf(Group group, Header header, Window window) throws IOException {
    long at = group.trailer().previous();
    if (at == 0) {
      return null;
    }
    // A trailer that a valid one points to was flushed before it: here damage is damage, not a torn tail.
    Trailer trailer = at < header.length() ? null : Trailer.decode(window.range(at, Trailer.SIZE), 0, at);
    if (trailer == null || trailer.indexOffset() < header.length()) {
      throw damaged(at, "the trailer of a group is damaged");
    }
    byte[] index = window.range(trailer.indexOffset(), (int) trailer.indexLength());
    if (Checksum.crc32c(index, 0, index.length) != trailer.indexCrc()) {
      throw damaged(trailer.indexOffset(), "the checksum of an index block does not match");
    }
    return group(at, trailer, index);
  }

  private Group group(long at, Trailer trailer, byte[] index) throws IOException {
    try {
      IndexBlock block = IndexBlock.decode(index, trailer);
      return new Group(at, trailer, block.entries(), block.names());
    } catch (MalformedIndexException e) {
      throw damaged(trailer.indexOffset(), e.getMessage());
    }
  }

  private StateStoreFilesException damaged(long offset, String what) {
    return new StateStoreFilesException(
        Id.PSS_CORRUPT_INDEX, source.name() + " is damaged at offset " + offset + ": " + what
            + ". Restore the file from a copy; nothing was changed or deleted.");
  }

  private byte[] range(long position, int length) throws IOException {
    byte[] bytes = new byte[length];
    source.readFully(position, bytes, 0, length);
    return bytes;
  }

  /** The part of the file that was read last: neighbouring groups share one read. */
  private final class Window {
    private byte[] bytes = new byte[0];
    private long start;

    void load(long from, long to) throws IOException {
      bytes = MergedFileReader.this.range(from, (int) (to - from));
      start = from;
    }

    byte[] range(long position, int length) throws IOException {
      if (position < start || position + length > start + bytes.length) {
        if (length > TAIL) {
          return MergedFileReader.this.range(position, length);
        }
        long to = position + length;
        load(Math.max(0, to - TAIL), to);
      }
      int at = (int) (position - start);
      return Arrays.copyOfRange(bytes, at, at + length);
    }
  }
}
