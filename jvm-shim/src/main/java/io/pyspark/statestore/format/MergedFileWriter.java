package io.pyspark.statestore.format;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * Appends groups to a merged file. It is not thread-safe: only the leader of a lane writes. It neither flushes nor
 * closes the stream, which the lane does (rule 1).
 */
public final class MergedFileWriter {
  private static final byte[] ZEROS = new byte[4096];

  private final OutputStream out;
  private final boolean fronts;
  private final List<Entry> written = new ArrayList<>();
  private long position;
  private long previousTrailer;

  /** The end of the group that was announced and has not ended; 0 for none. */
  private long announcedEnd;

  /** Starts a file by writing its header. */
  public MergedFileWriter(OutputStream out, Header header) throws IOException {
    this.out = out;
    this.fronts = header.hasFronts();
    byte[] bytes = header.encode();
    out.write(bytes);
    position = bytes.length;
  }

  /** The offset of the next byte, which is the length of the file. */
  public long position() {
    return position;
  }

  /**
   * Begins a group with its front, before any payload. Where the header says that groups have no fronts, this does
   * nothing.
   *
   * @param payloadLength bytes of all its segments together
   * @param paths the paths of all entries that its index will have; a group that also seals the file has those of
   *     earlier groups, too
   */
  public void announce(long payloadLength, Collection<String> paths) throws IOException {
    announce(payloadLength + IndexBlock.length(paths));
  }

  private void announce(long contentLength) throws IOException {
    if (fronts) {
      long length = Front.SIZE + contentLength + Trailer.SIZE;
      out.write(Front.encode(position, length));
      announcedEnd = position + length;
      position += Front.SIZE;
    }
  }

  /** Whether a group was announced that has not ended. */
  public boolean hasAnnounced() {
    return announcedEnd != 0;
  }

  /** Bytes that the announced group lacks if it ends with these entries, because a commit was taken back. */
  public long shortfall(Collection<String> paths) {
    return announcedEnd == 0 ? 0 : announcedEnd - position - IndexBlock.length(paths) - Trailer.SIZE;
  }

  /**
   * Appends payload bytes to the group that is being written. If the source fails, the bytes that it wrote stay in the
   * file as garbage, and other payloads may follow them.
   *
   * @param length the number of bytes that the source writes
   * @return the offset of the first of them
   */
  public long payload(long length, PayloadSource source) throws IOException {
    long offset = position;
    Counted counted = new Counted(out);
    try {
      source.writeTo(counted);
    } finally {
      position += counted.count;
    }
    if (counted.count != length) {
      throw new IOException(counted.count + " bytes were written where " + length + " were announced");
    }
    return offset;
  }

  private static final class Counted extends FilterOutputStream {
    private long count;

    Counted(OutputStream out) {
      super(out);
    }

    @Override
    public void write(int b) throws IOException {
      out.write(b);
      count++;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      out.write(bytes, offset, length);
      count += length;
    }
  }

  /** Writes the bytes of one segment. */
  public interface PayloadSource {
    void writeTo(OutputStream out) throws IOException;
  }

  /**
   * Ends a group of segments and tombstones. If it is shorter than announced, zeros fill it up, between the segments
   * and the index block.
   */
  public void endGroup(List<Entry> entries, long groupStamp) throws IOException {
    written.addAll(entries);
    end(new IndexBlock(entries, List.of()), 0, groupStamp);
  }

  /** Ends the group and the file with one trailer, as object stores want it. */
  public void endGroupAndSeal(List<Entry> entries, long groupStamp) throws IOException {
    written.addAll(entries);
    seal(groupStamp);
  }

  /** Ends the file with an index of all that was written to it. */
  public void seal(long groupStamp) throws IOException {
    if (!hasAnnounced()) {
      announce(0, written.stream().map(Entry::path).toList());
    }
    end(new IndexBlock(written, List.of()), Trailer.SEALED | Trailer.CUMULATIVE, groupStamp);
  }

  /**
   * Ends a file that only repeats the entries of other, sealed files.
   *
   * @param entries each with the {@code fileRef} of the file that holds it
   * @param names the names of these files
   * @param groupStamp above the stamps of all files that the writer knows
   */
  public void sealIndexOnly(List<Entry> entries, List<String> names, long groupStamp) throws IOException {
    IndexBlock.Encoded encoded = new IndexBlock(entries, names).encode();
    announce((long) encoded.bytes().length);
    end(encoded, entries.size(), Trailer.SEALED | Trailer.CUMULATIVE | Trailer.INDEX_ONLY, groupStamp);
  }

  private void pad(int indexLength) throws IOException {
    if (!fronts) {
      return;
    }
    long missing = announcedEnd - position - indexLength - Trailer.SIZE;
    if (announcedEnd == 0 || missing < 0) {
      throw new IOException("A group ends " + -missing + " bytes after where its front says that it does");
    }
    for (long left = missing; left > 0; left -= Math.min(left, ZEROS.length)) {
      out.write(ZEROS, 0, (int) Math.min(left, ZEROS.length));
    }
    position += missing;
    announcedEnd = 0;
  }

  void end(IndexBlock block, int flags, long groupStamp) throws IOException {
    end(block.encode(), block.entries().size(), flags, groupStamp);
  }

  private void end(IndexBlock.Encoded encoded, int count, int flags, long groupStamp) throws IOException {
    byte[] index = encoded.bytes();
    pad(index.length);
    long nameTable = encoded.nameTableStart() == 0 ? 0 : position + encoded.nameTableStart();
    Trailer trailer =
        new Trailer(
            flags,
            count,
            position,
            index.length,
            previousTrailer,
            groupStamp,
            nameTable,
            Checksum.crc32c(index, 0, index.length));
    out.write(index);
    out.write(trailer.encode());
    previousTrailer = position + index.length;
    position = previousTrailer + Trailer.SIZE;
  }
}
