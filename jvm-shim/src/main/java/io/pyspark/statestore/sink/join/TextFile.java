package io.pyspark.statestore.sink.join;

import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;

/**
 * One text file, taken apart while it is read: what stands before its lines, the lines, and what stands behind them.
 *
 * @param opening what stands before its lines
 * @param closing what stands behind them
 * @param lines null where the file was not read to its end, because it opens in another way than was expected
 */
record TextFile(byte[] opening, byte[] closing, Lines lines) {
  private static final int BUFFER = 1 << 16;

  /** A header or an opening that is longer is none. */
  private static final int LONGEST = 1 << 20;

  /** Of UTF-8, and of UTF-16 in both orders, with which those of UTF-32 begin or end. */
  private static final byte[][] MARKS = {
    {(byte) 0xef, (byte) 0xbb, (byte) 0xbf}, {(byte) 0xfe, (byte) 0xff}, {(byte) 0xff, (byte) 0xfe}
  };

  /** A file that cannot be joined with others; the message says why, to users. */
  static final class OddException extends IOException {
    private static final long serialVersionUID = 1L;

    OddException(String why) {
      super(why);
    }
  }

  /** Takes what is read. */
  interface Taker {
    /** What stands before the lines; not called for a file that opens in another way than was expected. */
    void open(byte[] opening) throws IOException;

    /** A piece of the lines. */
    void lines(byte[] bytes, int length) throws IOException;
  }

  /**
   * Reads a file.
   *
   * @param in its text, without compression
   * @param expected how it must open; null where it may open in any way
   * @param taker of what is read, as it comes
   * @throws OddException where the file is none whose lines may follow those of others
   */
  static TextFile read(InputStream in, TextForm form, byte[] expected, Taker taker) throws IOException {
    byte[] begin = new byte[BUFFER];
    int length = in.readNBytes(begin, 0, begin.length);
    for (byte[] mark : MARKS) {
      if (length >= mark.length && Arrays.equals(begin, 0, mark.length, mark, 0, mark.length)) {
        throw new OddException("it begins with a mark of the byte order");
      }
    }
    if (form.isTold() && hasZero(begin, length)) {
      throw new OddException("it has bytes of zero, as text in UTF-16 has; give the query's encoding");
    }
    int opens = form.opening(begin, length);
    while (opens < 0 && length == begin.length && length < LONGEST) {
      begin = Arrays.copyOf(begin, begin.length * 2);
      length += in.readNBytes(begin, length, begin.length - length);
      opens = form.opening(begin, length);
    }
    if (opens < 0) {
      throw new OddException(
          form.kind() == TextForm.Kind.XML
              ? "it does not begin with the element " + form.root() + "; give the query's rootTag"
              : "it has no header that ends; give the query's lineSep");
    }
    byte[] opening = Arrays.copyOf(begin, opens);
    if (expected != null && !Arrays.equals(opening, expected)) {
      return new TextFile(opening, new byte[0], null);
    }
    taker.open(opening);
    Lines lines = new Lines(form.separator());
    if (form.kind() == TextForm.Kind.CSV_WITH_HEADER) {
      lines.watch(Lines.checksum(opening, form.separator()));
    }
    byte[] closing = body(in, form, begin, opens, length, lines, taker);
    if (!lines.isAtEnd()) {
      throw new OddException("it does not end with the end of a line");
    }
    if (form.isTold() && form.kind() == TextForm.Kind.JSON && !lines.allBeginWith('{')) {
      throw new OddException("it has records of several lines, of which a reader takes the first one only");
    }
    return new TextFile(opening, closing, lines);
  }

  private static boolean hasZero(byte[] bytes, int length) {
    for (int at = 0; at < length; at++) {
      if (bytes[at] == 0) {
        return true;
      }
    }
    return false;
  }

  /** Passes on all but the last bytes, which are kept back until it is clear whether they are lines. */
  private static byte[] body(
      InputStream in, TextForm form, byte[] begin, int from, int length, Lines lines, Taker taker) throws IOException {
    int most = form.most();
    byte[] held = new byte[most + BUFFER];
    int has = 0;
    int at = from;
    byte[] piece = begin;
    int end = length;
    while (end >= 0) {
      while (at < end) {
        int taken = Math.min(end - at, held.length - has);
        System.arraycopy(piece, at, held, has, taken);
        at += taken;
        has += taken;
        if (has > most) {
          pass(held, has - most, lines, taker);
          System.arraycopy(held, has - most, held, 0, most);
          has = most;
        }
      }
      piece = piece == begin ? new byte[BUFFER] : piece;
      at = 0;
      end = in.read(piece, 0, piece.length);
    }
    int closes = form.closing(held, has);
    if (closes < 0) {
      throw new OddException("it does not end with the element " + form.root());
    }
    pass(held, has - closes, lines, taker);
    return Arrays.copyOfRange(held, has - closes, has);
  }

  private static void pass(byte[] bytes, int length, Lines lines, Taker taker) throws IOException {
    lines.add(bytes, 0, length);
    taker.lines(bytes, length);
  }
}
