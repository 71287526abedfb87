package io.pyspark.statestore.format;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * The index of a group: fixed-width entries, an array of offsets and a heap of paths, which Python maps into arrays
 * without a loop.
 *
 * @param entries in the order in which they were written
 * @param names the name table: names of other merged files in an index-only file, their paths in a reference file, else
 *     empty
 */
public record IndexBlock(List<Entry> entries, List<String> names) {
  /** Bytes of a block that has entries of these paths and no name table. */
  static long length(Collection<String> paths) {
    return Entry.fixedLength(paths.size())
        + paths.stream().mapToLong(path -> path.getBytes(StandardCharsets.UTF_8).length).sum();
  }

  /** The offset of the name table in the block. */
  private long nameTableStart(byte[][] paths) {
    long heap = 0;
    for (byte[] path : paths) {
      heap += path.length;
    }
    return Entry.fixedLength(entries.size()) + heap;
  }

  /** Encodes the block, with a name table if there are names. */
  Encoded encode() {
    byte[][] paths = utf8(entries.stream().map(Entry::path).toList());
    byte[][] files = utf8(names);
    long tableStart = nameTableStart(paths);
    long size = tableStart;
    if (!names.isEmpty()) {
      size += 4L + 4L * (names.size() + 1L);
      for (byte[] file : files) {
        size += file.length;
      }
    }
    ByteBuffer out = ByteBuffer.allocate(Math.toIntExact(size)).order(ByteOrder.LITTLE_ENDIAN);
    for (Entry e : entries) {
      out.put((byte) e.kind()).put((byte) e.type()).putShort((short) e.generation()).putInt(e.crc32c());
      out.putLong(e.stamp()).putLong(e.writer()).putLong(e.offset()).putLong(e.length());
      out.putInt(e.fileRef()).putInt(0);
    }
    putHeap(out, paths);
    if (!names.isEmpty()) {
      out.putInt(names.size());
      putHeap(out, files);
    }
    return new Encoded(out.array(), names.isEmpty() ? 0 : tableStart);
  }

  /** The bytes of a block, and the offset in them of the name table, 0 if there is none. */
  record Encoded(byte[] bytes, long nameTableStart) {}

  /** The block says something impossible; the reader adds the file and the offset. */
  static final class MalformedIndexException extends Exception {
    private static final long serialVersionUID = 1L;

    private MalformedIndexException(String what) {
      super(what);
    }
  }

  /**
   * Decodes a block whose checksum holds. Nothing else in it is trusted.
   *
   * @throws MalformedIndexException if the block says something impossible
   */
  static IndexBlock decode(byte[] bytes, Trailer trailer) throws MalformedIndexException {
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    int count = trailer.count();
    long tableStart = trailer.nameTableOffset() == 0 ? bytes.length : trailer.nameTableOffset() - trailer.indexOffset();
    if (tableStart < Entry.fixedLength(count) || tableStart > bytes.length) {
      throw new MalformedIndexException("its name table lies outside of the index block");
    }
    List<String> names = List.of();
    if (tableStart < bytes.length) {
      in.position((int) tableStart);
      int fileCount = in.remaining() < 4 ? -1 : in.getInt();
      names = strings(in, fileCount, bytes.length, "name table");
      checkNames(names, trailer.isForeign());
    }
    boolean onlyGroup =
        trailer.isSealed() && trailer.isCumulative() && !trailer.isIndexOnly() && trailer.previous() == 0;
    if (trailer.isForeign() && !onlyGroup) {
      throw new MalformedIndexException("it refers to other checkpoints, but is not the only group of a sealed file");
    }
    in.position(count * Entry.SIZE);
    List<String> paths = strings(in, count, (int) tableStart, "path heap");
    List<Entry> entries = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      in.position(i * Entry.SIZE);
      entries.add(entry(in, paths.get(i), trailer, names.size()));
    }
    return new IndexBlock(entries, names);
  }

  private static void checkNames(List<String> names, boolean foreign) throws MalformedIndexException {
    for (String name : names) {
      if (!PathRules.isMergedFileName(name) && !(foreign && PathRules.isForeignPath(name))) {
        throw new MalformedIndexException(
            "its name table holds '"
                + name
                + "', which is no "
                + (foreign ? "name or path" : "name")
                + " of a merged file");
      }
    }
  }

  private static Entry entry(ByteBuffer in, String path, Trailer trailer, int files) throws MalformedIndexException {
    int kind = in.get() & 0xff;
    int type = in.get() & 0xff;
    int generation = in.getShort() & 0xffff;
    int crc = in.getInt();
    long stamp = in.getLong();
    long writer = in.getLong();
    long offset = in.getLong();
    long length = in.getLong();
    int fileRef = in.getInt();
    if (!PathRules.isValidPath(path)) {
      throw new MalformedIndexException("the logical path '" + path + "' is not a relative path below state/");
    }
    if (kind != Entry.PUT && kind != Entry.DELETE) {
      throw new MalformedIndexException("entry kind " + kind + " for " + path + " is unknown");
    }
    if (stamp < 0 || writer < 0 || fileRef < 0 || fileRef > files) {
      throw new MalformedIndexException("the stamp, writer or file reference of " + path + " is out of range");
    }
    // A segment of this file lies before the index block. One in another file is checked when it is read.
    boolean fits =
        offset >= 0
            && length >= 0
            && length <= Long.MAX_VALUE - offset
            && (kind == Entry.DELETE || fileRef != 0 || offset + length <= trailer.indexOffset());
    if (!fits) {
      throw new MalformedIndexException("the segment of " + path + " lies outside of the file");
    }
    if (trailer.isForeign() && (kind != Entry.PUT || fileRef == 0)) {
      throw new MalformedIndexException(path + " is not a segment of another checkpoint in a reference file");
    }
    return new Entry(kind, type, generation, crc, stamp, writer, offset, length, fileRef, path);
  }

  /**
   * Reads {@code count} strings: first their offsets, at the buffer's position, then the heap, which ends at {@code
   * end}.
   */
  private static List<String> strings(ByteBuffer in, int count, int end, String what) throws MalformedIndexException {
    if (count < 0 || 4L * (count + 1L) > end - in.position()) {
      throw new MalformedIndexException("the " + what + " is larger than the index block");
    }
    int heap = in.position() + 4 * (count + 1);
    List<String> result = new ArrayList<>(count);
    int from = in.getInt();
    for (int i = 0; i < count; i++) {
      int to = in.getInt();
      if (from < 0 || to < from || to > end - heap || (i == 0 && from != 0)) {
        throw new MalformedIndexException("the offsets of the " + what + " are not in order");
      }
      result.add(text(ByteBuffer.wrap(in.array(), heap + from, to - from), what));
      from = to;
    }
    if (from != end - heap) {
      throw new MalformedIndexException("the " + what + " does not end where it says");
    }
    return result;
  }

  private static String text(ByteBuffer utf8, String what) throws MalformedIndexException {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(utf8).toString();
    } catch (CharacterCodingException e) {
      throw new MalformedIndexException("the " + what + " is not UTF-8");
    }
  }

  private static void putHeap(ByteBuffer out, byte[][] strings) {
    int offset = 0;
    out.putInt(offset);
    for (byte[] s : strings) {
      offset += s.length;
      out.putInt(offset);
    }
    for (byte[] s : strings) {
      out.put(s);
    }
  }

  private static byte[][] utf8(List<String> strings) {
    return strings.stream().map(s -> s.getBytes(StandardCharsets.UTF_8)).toArray(byte[][]::new);
  }
}
