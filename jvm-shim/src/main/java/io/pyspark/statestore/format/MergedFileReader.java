package io.pyspark.statestore.format;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Reads the index of a merged file: the group that ends it, then back along {@code previous}.
 *
 * <p>Where no group ends the file, a killed writer left the beginning of one, or the file is damaged. Fronts tell which:
 * each announces where its group ends, so what is shorter than announced was torn, and what is as long is damaged. A
 * file that is <i>whole</i> got its name when it was sealed: without the seal at its end it is damaged. Of files without
 * fronts, which release 0.1 wrote, only a damaged trailer at the very end tells; see {@link Parsed#accounted}.
 *
 * <p>A merged file is input: nothing is allocated from a length in it before that length is known to fit.
 */
public final class MergedFileReader {
  /** One read of this size at the end serves most files. */
  static final int TAIL = 64 * 1024;

  /** Smaller files than this are read at once. */
  private static final int HEAD = 4096;

  private final RangeSource source;
  private final Window window = new Window();
  private long length;
  private Header header;
  private boolean accounted = true;

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
   * @param accounted whether it is known what all of its bytes are: groups, or the beginning of one that a killed writer
   *     left. Where not, they may be a group that was damaged, and nobody may delete the file (rule 8)
   */
  public record Parsed(Header header, List<Group> groups, long validLength, long length, boolean accounted) {
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
    length = source.length();
    header = readHeader();
    if (header == null) {
      return new Parsed(null, List.of(), 0, length, !isZeroFrom(0));
    }
    if (header.hasFronts() && knownTrailer > 0) {
      return announcedGroups(knownTrailer);
    }
    Group last = groupAtEnd();
    if (header.isWhole() && (last == null || !last.trailer().isSealed())) {
      throw damaged(Math.max(header.length(), length - Trailer.SIZE),
          "it got its name when it was sealed, and does not end with the seal");
    }
    if (last == null && header.hasFronts()) {
      return announcedGroups(0);
    }
    if (last == null) {
      last = lastGroup();
      accounted = length == (last == null ? header.length() : last.end());
    }
    return backFrom(last, knownTrailer);
  }

  private Parsed backFrom(Group last, long knownTrailer) throws IOException {
    List<Group> groups = new ArrayList<>();
    for (Group g = last; g != null && g.trailerOffset() > knownTrailer; g = previousOf(g)) {
      groups.add(g);
      if (g.trailer().isCumulative()) {
        break;
      }
    }
    Collections.reverse(groups);
    return new Parsed(header, groups, last == null ? 0 : last.end(), length, accounted);
  }

  private Header readHeader() throws IOException {
    byte[] head = range(0, (int) Math.min(length, HEAD));
    Header found = Header.decode(source.name(), head);
    if (found == null && length > head.length) {
      found = Header.decode(source.name(), range(0, (int) Math.min(length, Header.MAX_LENGTH)));
    }
    return found;
  }

  /**
   * The group that ends the file, which nearly every file has. A killed writer leaves the first part of a group, and its
   * trailer is the last part: so where what looks like a trailer ends the file, all of the group was there once.
   */
  private Group groupAtEnd() throws IOException {
    long at = length - Trailer.SIZE;
    if (at < header.length()) {
      return null;
    }
    byte[] bytes = window.range(at, Trailer.SIZE);
    Trailer trailer = Trailer.decode(bytes, 0, at);
    if (trailer != null && trailer.indexOffset() >= header.length()) {
      return checkedGroup(at, trailer);
    }
    if (!header.hasFronts() && Trailer.wasOne(bytes)) {
      throw damaged(at, "the trailer of its last group is damaged");
    }
    return null;
  }

  /** Goes from front to front, up to the group that was never finished. */
  private Parsed announcedGroups(long knownTrailer) throws IOException {
    List<Group> groups = new ArrayList<>();
    long at = knownTrailer == 0 ? header.length() : knownTrailer + Trailer.SIZE;
    long previous = knownTrailer;
    boolean sealed = false;
    while (at < length) {
      if (sealed) {
        throw damaged(at, "bytes follow the group that seals it");
      }
      long end = announcedEnd(at);
      Group group = end < 0 ? null : announcedGroup(at, end, previous);
      if (group == null) {
        break;
      }
      groups.add(group);
      at = end;
      previous = group.trailerOffset();
      sealed = group.trailer().isSealed();
    }
    if (sealed) {
      groups.subList(0, groups.size() - 1).clear();
    }
    return new Parsed(header, groups, previous == 0 ? 0 : at, length, accounted);
  }

  /** Where the group ends that begins there; -1 where its writer has not come to that, or was killed before. */
  private long announcedEnd(long at) throws IOException {
    byte[] front = window.ahead(at, (int) Math.min(Front.SIZE, length - at));
    if (Front.isZero(front) && isZeroFrom(at)) {
      // A machine may have died before they reached its disk, or they were overwritten.
      accounted = false;
      return -1;
    }
    if (front.length < Front.SIZE) {
      if (Front.beginsOne(front, at)) {
        return -1;
      }
      throw damaged(at, "the bytes after its last group are not the front of another");
    }
    long announced = Front.groupLength(front, at);
    if (announced < 0) {
      throw damaged(at, "the front of a group is damaged");
    }
    if (announced <= length - at) {
      return at + announced;
    }
    // Something was cut out of it: its trailer, which its writer writes last, is there.
    long trailerAt = length - Trailer.SIZE;
    if (trailerAt >= at + Front.SIZE && Trailer.wasOne(window.range(trailerAt, Trailer.SIZE))) {
      throw damaged(at, at + announced - length + " bytes of a group are missing");
    }
    return -1;
  }

  /** A group that is there from its front to its trailer; null where all of its end was never written. */
  private Group announcedGroup(long at, long end, long previous) throws IOException {
    long trailerAt = end - Trailer.SIZE;
    byte[] bytes = window.ahead(trailerAt, Trailer.SIZE);
    Trailer trailer = Trailer.decode(bytes, 0, trailerAt);
    if (trailer != null && trailer.indexOffset() >= at + Front.SIZE && trailer.previous() == previous) {
      return checkedGroup(trailerAt, trailer);
    }
    if (Front.isZero(bytes) && isZeroFrom(trailerAt)) {
      accounted = false;
      return null;
    }
    throw damaged(trailerAt, "the trailer of a group is damaged");
  }

  /** Whether there are bytes from there on, and all are zeros. */
  private boolean isZeroFrom(long from) throws IOException {
    for (long at = from; at < length; at += TAIL) {
      if (!Front.isZero(window.ahead(at, (int) Math.min(TAIL, length - at)))) {
        return false;
      }
    }
    return from < length;
  }

  /** Searches a file without fronts backwards for the last trailer whose checksum holds. */
  private Group lastGroup() throws IOException {
    long end = length;
    while (end - Trailer.SIZE >= header.length()) {
      long start = Math.max(header.length(), end - TAIL);
      byte[] searched = range(start, (int) (end - start));
      for (int at = searched.length - Trailer.SIZE; at >= 0; at--) {
        Trailer trailer = Trailer.decode(searched, at, start + at);
        if (trailer != null && trailer.indexOffset() >= header.length()) {
          return foundGroup(start + at, trailer);
        }
      }
      if (start == header.length()) {
        return null;
      }
      end = start + Trailer.SIZE - 1;
    }
    return null;
  }

  private Group foundGroup(long at, Trailer trailer) throws IOException {
    Group group = checkedGroup(at, trailer);
    if (trailer.isSealed() && group.end() < length) {
      throw damaged(group.end(), "bytes follow the group that seals it");
    }
    return group;
  }

  private Group previousOf(Group group) throws IOException {
    long at = group.trailer().previous();
    if (at == 0) {
      return null;
    }
    // A trailer that a valid one points to was flushed before it: here damage is damage, not a torn tail.
    Trailer trailer = at < header.length() ? null : Trailer.decode(window.range(at, Trailer.SIZE), 0, at);
    if (trailer == null || trailer.indexOffset() < header.length()) {
      throw damaged(at, "the trailer of a group is damaged");
    }
    return checkedGroup(at, trailer);
  }

  private Group checkedGroup(long at, Trailer trailer) throws IOException {
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
    } catch (IndexBlock.MalformedIndexException e) {
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

    /** A range; what is before it is kept for those who go back. */
    byte[] range(long position, int count) throws IOException {
      if (!holds(position, count)) {
        if (count > TAIL) {
          return MergedFileReader.this.range(position, count);
        }
        long to = position + count;
        load(Math.max(0, to - TAIL), to);
      }
      return part(position, count);
    }

    /** A range of at most {@link #TAIL} bytes; what follows it is kept for those who go on. */
    byte[] ahead(long position, int count) throws IOException {
      if (!holds(position, count)) {
        load(position, Math.min(length, position + TAIL));
      }
      return part(position, count);
    }

    private boolean holds(long position, int count) {
      return position >= start && position + count <= start + bytes.length;
    }

    private byte[] part(long position, int count) {
      int at = (int) (position - start);
      return Arrays.copyOfRange(bytes, at, at + count);
    }
  }
}
