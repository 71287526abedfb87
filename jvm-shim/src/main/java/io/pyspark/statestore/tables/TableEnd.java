package io.pyspark.statestore.tables;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * Finds out where the data of an SST ends, from its last bytes. What follows the data (filter, index, deleted ranges,
 * properties, footer) is what RocksDB reads when it opens the file, and it is a few percent of the file.
 *
 * <p>The layout is RocksDB's block-based table: the footer says where the index of these parts is, that index names the
 * properties, and the property {@code rocksdb.data.size} is where the last data block ends. Whatever is not as expected
 * is {@link #UNKNOWN}, and such a file is copied whole. So is a file without block checksums: they are how a read
 * notices that a block is not there yet.
 */
final class TableEnd {
  /** The file has to be copied whole. */
  static final long UNKNOWN = -1;

  private static final int FOOTER = 53;
  private static final long MAGIC = 0x88e241b785f4cff7L;
  private static final int EXTENDED_MAGIC = 0x007a003e;
  private static final int NO_CHECKSUMS = 0;

  /** How a block was compressed, and its checksum. */
  private static final int BLOCK_TRAILER = 5;

  /** From this version on the footer says only where the index of the parts is. */
  private static final int SHORT_FOOTER_VERSION = 6;

  private static final int NEWEST_VERSION = 6;
  private static final String PROPERTIES = "rocksdb.properties";
  private static final String DATA_SIZE = "rocksdb.data.size";

  private record Part(long offset, long size) {}

  /** Receives the entries of a block. */
  private interface Entries {
    void entry(String key, ByteBuffer value);
  }

  /** More of the file is needed to say it. */
  private static final class TooShort extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private final long from;

    TooShort(long from) {
      super(null, null, false, false);
      this.from = from;
    }
  }

  /**
   * @param from where the bytes begin that are needed; the end of the data, if {@code isKnown}
   */
  record Answer(long from, boolean isKnown) {}

  private final ByteBuffer tail;
  private final long start;

  private TableEnd(byte[] tail, long start) {
    this.tail = ByteBuffer.wrap(tail).order(ByteOrder.LITTLE_ENDIAN);
    this.start = start;
  }

  /**
   * Says where the data ends, or from where on the file is needed to know.
   *
   * @param tail the last bytes of the file
   * @param length of the whole file
   */
  static Answer find(byte[] tail, long length) {
    if (tail.length < FOOTER) {
      return new Answer(Math.max(0, length - FOOTER), length < FOOTER);
    }
    try {
      long end = new TableEnd(tail, length - tail.length).dataEnd(length);
      return new Answer(end > 0 && end <= length - FOOTER ? end : UNKNOWN, true);
    } catch (TooShort e) {
      return e.from < 0 || e.from >= length - tail.length ? new Answer(UNKNOWN, true) : new Answer(e.from, false);
    } catch (RuntimeException e) {
      // It does not have RocksDB's layout. RocksDB will say so itself.
      return new Answer(UNKNOWN, true);
    }
  }

  /** Where the data of a local file ends that is whole; {@link #UNKNOWN} where it is no SST as expected. */
  static long of(Path file) throws IOException {
    try (RandomAccessFile in = new RandomAccessFile(file.toFile(), "r")) {
      long length = in.length();
      Answer answer = new Answer(Math.max(0, length - FOOTER), false);
      while (!answer.isKnown) {
        byte[] tail = new byte[Math.toIntExact(length - answer.from)];
        in.seek(answer.from);
        in.readFully(tail);
        answer = find(tail, length);
      }
      return answer.from;
    }
  }

  private long dataEnd(long length) {
    int footer = tail.limit() - FOOTER;
    int version = tail.getInt(tail.limit() - 12);
    if (tail.getLong(tail.limit() - 8) != MAGIC
        || version < 1
        || version > NEWEST_VERSION
        || tail.get(footer) == NO_CHECKSUMS) {
      return UNKNOWN;
    }
    Part parts;
    Part index;
    if (version >= SHORT_FOOTER_VERSION) {
      if (tail.getInt(footer + 1) != EXTENDED_MAGIC) {
        return UNKNOWN;
      }
      int size = tail.getInt(footer + 13);
      parts = new Part(length - FOOTER - BLOCK_TRAILER - size, size);
      // It is among the parts.
      index = parts;
    } else {
      ByteBuffer handles = tail.duplicate().position(footer + 1);
      parts = handle(handles);
      index = handle(handles);
    }
    long[] first = {Math.min(parts.offset, index.offset)};
    Part[] properties = {null};
    entries(
        parts,
        (key, value) -> {
          Part part = handle(value);
          first[0] = Math.min(first[0], part.offset);
          if (key.equals(PROPERTIES)) {
            properties[0] = part;
          }
        });
    long[] dataSize = {UNKNOWN};
    if (properties[0] != null) {
      entries(
          properties[0],
          (key, value) -> {
            if (key.equals(DATA_SIZE)) {
              dataSize[0] = varint(value);
            }
          });
    }
    return dataSize[0] <= first[0] ? dataSize[0] : UNKNOWN;
  }

  /** Goes through a block of which no part is compressed, which is so for all but data, index and filter. */
  private void entries(Part part, Entries receiver) {
    if (part.offset < start) {
      throw new TooShort(part.offset);
    }
    int at = Math.toIntExact(part.offset - start);
    int end = Math.addExact(at, Math.toIntExact(part.size));
    if (tail.get(end) != 0) {
      throw new IllegalArgumentException("compressed");
    }
    int restarts = tail.getInt(end - 4);
    ByteBuffer block =
        tail.duplicate()
            .order(ByteOrder.LITTLE_ENDIAN)
            .position(at)
            .limit(Math.subtractExact(end - 4, Math.multiplyExact(4, restarts)));
    byte[] key = new byte[0];
    while (block.hasRemaining()) {
      int shared = within(varint(block), key.length);
      byte[] rest = new byte[within(varint(block), block.remaining())];
      int valueLength = within(varint(block), block.remaining());
      block.get(rest);
      byte[] whole = new byte[shared + rest.length];
      System.arraycopy(key, 0, whole, 0, shared);
      System.arraycopy(rest, 0, whole, shared, rest.length);
      key = whole;
      receiver.entry(new String(key, StandardCharsets.ISO_8859_1), block.slice(block.position(), valueLength));
      block.position(block.position() + valueLength);
    }
  }

  private static int within(long value, int most) {
    if (value < 0 || value > most) {
      throw new IllegalArgumentException("longer than the block");
    }
    return (int) value;
  }

  private static Part handle(ByteBuffer from) {
    long offset = varint(from);
    return new Part(offset, varint(from));
  }

  private static long varint(ByteBuffer from) {
    long value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      byte next = from.get();
      value |= (long) (next & 0x7f) << shift;
      if (next >= 0) {
        return value;
      }
    }
    throw new IllegalArgumentException("no varint");
  }
}
