package io.pyspark.statestore.sink;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.List;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.compress.BZip2Codec;
import org.apache.hadoop.io.compress.CodecPool;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionCodecFactory;
import org.apache.hadoop.io.compress.Compressor;
import org.apache.hadoop.io.compress.Decompressor;
import org.apache.hadoop.io.compress.GzipCodec;

/**
 * Copies the lines of text files byte by byte. Each file ends with the end of a line, so one after the other they are a
 * text file again. What gzip and bzip2 have compressed may follow each other like that, too; other compressions are
 * undone and done again. Bytes are counted on the way, and the new file is asked how many it has.
 */
final class TextCopy implements JoinedFiles.Copy {
  private static final int BUFFER = 1 << 16;

  private final int headerLines;
  private final byte[] lineSeparator;

  /**
   * @param headerLines lines at the beginning of each file that the new one is to have once
   * @param lineSeparator what ends a line of them
   */
  TextCopy(int headerLines, byte[] lineSeparator) {
    this.headerLines = headerLines;
    this.lineSeparator = lineSeparator;
  }

  @Override
  public List<FileStatus> copy(List<FileStatus> files, Supplier<Path> next, int number, Configuration conf)
      throws IOException {
    Path to = next.get();
    CompressionCodec codec = new CompressionCodecFactory(conf).getCodec(to);
    boolean follow = codec == null || codec instanceof GzipCodec || codec instanceof BZip2Codec;
    CompressionCodec undone = follow && headerLines == 0 ? null : codec;
    FileSystem fs = to.getFileSystem(conf);
    long written = 0;
    Compressor compressor = undone == null ? null : CodecPool.getCompressor(undone, conf);
    try (FetchedFiles fetched = new FetchedFiles(files, conf);
        OutputStream out = output(fs.create(to, false), undone, compressor)) {
      boolean isFirst = true;
      for (FileStatus file = fetched.next(); file != null; file = fetched.next()) {
        long copied = copy(file.getPath().getFileSystem(conf), file.getPath(), undone, isFirst, out);
        if (undone == null && headerLines == 0 && copied != file.getLen()) {
          throw JoinedFiles.differs(file.getPath(), copied, file.getLen(), "bytes");
        }
        written += copied;
        isFirst = false;
      }
    } finally {
      CodecPool.returnCompressor(compressor);
    }
    FileStatus made = fs.getFileStatus(to);
    long found = undone == null ? made.getLen() : copy(fs, to, undone, true, OutputStream.nullOutputStream());
    if (found != written) {
      throw JoinedFiles.differs(to, found, written, "bytes");
    }
    return List.of(made);
  }

  /** Copies one file, without its header where it is not the first. */
  private long copy(FileSystem fs, Path file, CompressionCodec codec, boolean isFirst, OutputStream out)
      throws IOException {
    Decompressor decompressor = codec == null ? null : CodecPool.getDecompressor(codec);
    try (InputStream in = input(fs.open(file), codec, decompressor)) {
      Header header = new Header(isFirst ? 0 : headerLines, lineSeparator);
      byte[] buffer = new byte[BUFFER];
      long copied = 0;
      for (int read = in.read(buffer); read >= 0; read = in.read(buffer)) {
        int begin = header.endIn(buffer, read);
        out.write(buffer, begin, read - begin);
        copied += read - begin;
      }
      return copied;
    } finally {
      CodecPool.returnDecompressor(decompressor);
    }
  }

  private static OutputStream output(OutputStream raw, CompressionCodec codec, Compressor compressor)
      throws IOException {
    return codec == null ? raw : codec.createOutputStream(raw, compressor);
  }

  private static InputStream input(InputStream raw, CompressionCodec codec, Decompressor decompressor)
      throws IOException {
    return codec == null ? raw : codec.createInputStream(raw, decompressor);
  }

  /** Finds the end of a file's header, which may be in any of the pieces in which the file is read. */
  private static final class Header {
    private final byte[] separator;
    private int linesLeft;
    private int matched;

    Header(int lines, byte[] separator) {
      this.linesLeft = lines;
      this.separator = separator;
    }

    /** Where in the next piece what follows the header begins. */
    int endIn(byte[] piece, int length) {
      int at = 0;
      while (linesLeft > 0 && at < length) {
        matched = piece[at] == separator[matched] ? matched + 1 : piece[at] == separator[0] ? 1 : 0;
        if (matched == separator.length) {
          matched = 0;
          linesLeft--;
        }
        at++;
      }
      return at;
    }
  }
}
