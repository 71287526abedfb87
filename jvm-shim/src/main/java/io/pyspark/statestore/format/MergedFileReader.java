package io.pyspark.statestore.format;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Reads the index of a merged file: the group that ends it, and the earlier ones along {@code previous}.
 *
 * <p>If no group ends the file, its writer was killed in the middle of one, or the file is damaged. Fronts tell which:
 * each announces where its group ends, so a group that is shorter was torn, and one that is as long is damaged. A file
 * that is <i>whole</i> got its name when it was sealed, so it is damaged if no seal ends it. Files of release 0.1 have
 * no fronts: there only a damaged trailer at the very end tells, see {@link Parsed#accounted}.
 *
 * <p>A merged file is input: the reader allocates nothing for a length before it knows that the length fits.
 */
public final class MergedFileReader {
  /** Bytes of one read; at the end of a file, it has all that is needed of most. */
  static final int TAIL_LENGTH = 64 * 1024;

  /** Bytes of the first read, which has the whole header of most files. */
  private static final int HEAD_LENGTH = 4096;

  private final RangeSource source;
  private final Window window = new Window();
  private long length;
  private Header header;
  private boolean accounted = true;

  private MergedFileReader(RangeSource source) {
    this.source = source;
  }

  /**
   * What a merged file says.
   *
   * @param header null if the writer died before its first flush
   * @param groups oldest first; if there is a cumulative group, that one and those after it
   * @param validLength bytes up to the end of the last valid group, 0 if there is none
   * @param length bytes in the file; those after {@code validLength} are a torn tail and do not exist
   * @param accounted whether every byte is known to be of a group, or of the beginning of one that its writer never
   *     finished. If not, some bytes may be a damaged group, and nobody may delete the file (rule 8)
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
   * Reads the groups that follow one that is known already.
   *
   * @param knownTrailer the offset of that group's trailer; 0 reads all groups
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
      throw damaged(
          Math.max(header.length(), length - Trailer.SIZE),
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
    int most = (int) Math.min(length, HEAD_LENGTH);
    // A file that one read of its end has whole is read once.
    byte[] head = length <= TAIL_LENGTH ? window.ahead(0, most) : range(0, most);
    Header found = Header.decode(source.name(), head);
    if (found == null && length > head.length) {
      found = Header.decode(source.name(), range(0, (int) Math.min(length, Header.MAX_LENGTH)));
    }
    return found;
  }

  /**
   * The group that ends the file, or null. Nearly every file has one. A trailer is the last part of a group that is
   * written: so if what looks like a trailer ends the file, the whole group was there once, and is damaged if it does
   * not hold.
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
    if (!header.hasFronts() && Trailer.wasTrailer(bytes)) {
      throw damaged(at, "the trailer of its last group is damaged");
    }
    return null;
  }

  /** Goes from front to front, up to the end or to a group that was never finished. */
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

  /** The end of the group that begins at an offset; -1 if its writer has not finished it, or was killed before. */
  private long announcedEnd(long at) throws IOException {
    byte[] front = window.ahead(at, (int) Math.min(Front.SIZE, length - at));
    if (Front.isZero(front) && isZeroFrom(at)) {
      // A machine died before the bytes reached its disk, or they were overwritten.
      accounted = false;
      return -1;
    }
    if (front.length < Front.SIZE) {
      if (Front.canBegin(front, at)) {
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
    // A trailer is written last. If it is there and the group is too short, bytes were cut out of the group.
    long trailerAt = length - Trailer.SIZE;
    if (trailerAt >= at + Front.SIZE && Trailer.wasTrailer(window.range(trailerAt, Trailer.SIZE))) {
      throw damaged(at, at + announced - length + " bytes of a group are missing");
    }
    return -1;
  }

  /** The group between a front and the end that it announces; null if zeros are where its trailer should be. */
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

  /** Whether the file goes on at an offset, with zeros only. */
  private boolean isZeroFrom(long from) throws IOException {
    for (long at = from; at < length; at += TAIL_LENGTH) {
      if (!Front.isZero(window.ahead(at, (int) Math.min(TAIL_LENGTH, length - at)))) {
        return false;
      }
    }
    return from < length;
  }

  /** Searches a file without fronts backwards for the last trailer whose checksum holds. */
  private Group lastGroup() throws IOException {
    long end = length;
    while (end - Trailer.SIZE >= header.length()) {
      long start = Math.max(header.length(), end - TAIL_LENGTH);
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
    // A trailer that a valid one points to was flushed before it, so it cannot be torn: it is damaged.
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
        Id.PSS_CORRUPT_INDEX,
        source.name()
            + " is damaged at offset "
            + offset
            + ": "
            + what
            + ". Restore the file from a copy; nothing was changed or deleted.");
  }

  private byte[] range(long position, int length) throws IOException {
    byte[] bytes = new byte[length];
    source.readFully(position, bytes, 0, length);
    return bytes;
  }

  /** The part of the file that was read last, so that neighbouring groups share one read. */
  private final class Window {
    private byte[] bytes = new byte[0];
    private long start;

    void load(long from, long to) throws IOException {
      bytes = MergedFileReader.this.range(from, (int) (to - from));
      start = from;
    }

    /** Returns a range, and keeps the bytes before it for a reader that goes back. */
    byte[] range(long position, int count) throws IOException {
      if (!holds(position, count)) {
        if (count > TAIL_LENGTH) {
          return MergedFileReader.this.range(position, count);
        }
        long to = position + count;
        load(Math.max(0, to - TAIL_LENGTH), to);
      }
      return part(position, count);
    }

    /** Returns a range of at most {@link #TAIL_LENGTH} bytes, and keeps those after it for a reader that goes on. */
    byte[] ahead(long position, int count) throws IOException {
      if (!holds(position, count)) {
        load(position, Math.min(length, position + TAIL_LENGTH));
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
