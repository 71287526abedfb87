package io.pyspark.statestore.sink;

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

  private static final byte[] MARK = {(byte) 0xef, (byte) 0xbb, (byte) 0xbf};

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
    if (length >= MARK.length && Arrays.equals(begin, 0, MARK.length, MARK, 0, MARK.length)) {
      throw new OddException("it begins with a mark of the byte order");
    }
    int opens = form.opening(begin, length);
    while (opens < 0 && length == begin.length && length < LONGEST) {
      begin = Arrays.copyOf(begin, begin.length * 2);
      length += in.readNBytes(begin, length, begin.length - length);
      opens = form.opening(begin, length);
    }
    if (opens < 0) {
      throw new OddException(form.kind() == TextForm.Kind.XML
          ? "it does not begin with the element " + form.root() + "; give the query's rootTag"
          : "it has no header that ends; give the query's lineSep and quote");
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
    return new TextFile(opening, closing, lines);
  }

  /** Passes on all but the last bytes, which are kept back until it is clear whether they are lines. */
  private static byte[] body(
      InputStream in, TextForm form, byte[] begin, int from, int length, Lines lines, Taker taker)
      throws IOException {
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
