package io.pyspark.statestore.sink.join;

import io.pyspark.statestore.sink.join.Joined.Left;
import io.pyspark.statestore.sink.join.Joined.Part;
import io.pyspark.statestore.sink.join.TextFile.OddException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
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
 * text file again; what stands around the lines ({@link TextForm}) must be the same in all of them, and the new file
 * has it once. What gzip and bzip2 have compressed may follow each other, too, where nothing stands around; otherwise
 * compression is undone and done again.
 *
 * <p>The lines of each file are counted and summed up as they are read, without compression. The new file is read
 * again, and so are its lines.
 */
final class TextCopy implements JoinedFiles.Copy {
  private static final long serialVersionUID = 1L;

  private static final int BUFFER = 1 << 16;

  /** So often a file that turns out to be odd late makes the others be copied again. */
  private static final int MOST_RESTARTS = 8;

  private final TextForm form;

  TextCopy(TextForm form) {
    this.form = form;
  }

  @Override
  public Joined copy(List<FileStatus> files, Function<String, Path> next, int number, Configuration conf)
      throws IOException {
    Joined all = new Joined(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
    List<FileStatus> open = new ArrayList<>(files);
    String ending = PartNames.ending(files.get(0).getPath().getName());
    int restarts = 0;
    while (open.size() > 1 && restarts < MOST_RESTARTS) {
      Pass pass = new Pass(next.apply(ending), conf);
      pass.run(open);
      restarts += pass.lateOnes > 0 ? 1 : 0;
      open.removeIf(file -> pass.odd.containsKey(file));
      pass.odd.forEach((file, why) -> all.left().add(new Left(file, why)));
      if (pass.lateOnes == 0) {
        open.removeIf(pass.fitting::contains);
        pass.addTo(all);
      }
    }
    String why =
        open.size() > 1 ? "too many of the files beside it cannot be joined" : "no other file begins as it does";
    open.forEach(file -> all.left().add(new Left(file, why)));
    return all;
  }

  /** One way through the files, which joins those that open in the same way as the first. */
  private final class Pass {
    private final Path to;
    private final Configuration conf;
    private final FileSystem fs;
    private final CompressionCodec codec;

    /** Whether compressed files follow each other as they are. */
    private final boolean isRaw;

    private final Set<FileStatus> fitting = new HashSet<>();
    private final List<Part> sources = new ArrayList<>();
    private final List<TextFile> texts = new ArrayList<>();
    private final Map<FileStatus, String> odd = new LinkedHashMap<>();

    /** Files of which something was written before they turned out to be odd. */
    private int lateOnes;

    Pass(Path to, Configuration conf) throws IOException {
      this.to = to;
      this.conf = conf;
      this.fs = to.getFileSystem(conf);
      this.codec = new CompressionCodecFactory(conf).getCodec(to);
      this.isRaw = !form.hasFrame() && (codec == null || codec instanceof GzipCodec || codec instanceof BZip2Codec);
    }

    void run(List<FileStatus> files) throws IOException {
      CompressionCodec again = isRaw ? null : codec;
      Compressor compressor = again == null ? null : CodecPool.getCompressor(again, conf);
      try (FetchedFiles fetched = new FetchedFiles(files, conf);
          OutputStream out = output(fs.create(to, false), again, compressor)) {
        int at = 0;
        for (FileStatus file = fetched.next(); file != null && lateOnes == 0; file = fetched.next()) {
          take(files.get(at++), file, out);
        }
        if (!texts.isEmpty()) {
          out.write(texts.get(0).closing());
        }
      } finally {
        CodecPool.returnCompressor(compressor);
      }
    }

    private void take(FileStatus file, FileStatus fetched, OutputStream out) throws IOException {
      TextFile first = texts.isEmpty() ? null : texts.get(0);
      // Compressed files that follow each other as they are have been written when they are taken apart.
      LineWriter lines = new LineWriter(isRaw ? OutputStream.nullOutputStream() : out, first == null);
      try {
        TextFile text = read(fetched, first == null ? null : first.opening(), lines, isRaw ? out : null);
        if (text.lines() == null) {
          return;
        }
        if (first != null && !Arrays.equals(first.closing(), text.closing())) {
          throw new OddException("it ends in another way than the others");
        }
        texts.add(text);
        fitting.add(file);
        sources.add(new Part(file, text.lines().count(), text.lines().sum()));
      } catch (OddException e) {
        odd.put(file, e.getMessage());
        lateOnes += lines.hasBegun || isRaw ? 1 : 0;
      } catch (NotWrittenException e) {
        throw e;
      } catch (IOException e) {
        if (!FetchedFiles.isSound(fetched, conf)) {
          throw e;
        }
        odd.put(file, "it cannot be read: " + Joined.reason(e));
        lateOnes++;
      }
    }

    private TextFile read(FileStatus file, byte[] opening, TextFile.Taker taker, OutputStream raw) throws IOException {
      Decompressor decompressor = codec == null ? null : CodecPool.getDecompressor(codec);
      InputStream source = file.getPath().getFileSystem(conf).open(file.getPath());
      try (InputStream whole = raw == null ? source : new Tee(source, raw);
          InputStream in = codec == null ? whole : codec.createInputStream(whole, decompressor)) {
        TextFile text = TextFile.read(in, form, opening, taker);
        if (text.lines() != null && codec != null && whole.read(new byte[BUFFER]) >= 0) {
          throw new OddException("something follows what is compressed in it");
        }
        return text;
      } finally {
        CodecPool.returnDecompressor(decompressor);
      }
    }

    /** Reads what was written, and enters it. */
    void addTo(Joined all) throws IOException {
      if (sources.size() < 2) {
        sources.forEach(source -> all.left().add(new Left(source.file(), "no other file begins as it does")));
        return;
      }
      String why = doubt();
      FileStatus made = fs.getFileStatus(to);
      Lines lines = null;
      if (why == null) {
        try {
          TextFile text =
              read(made, texts.get(0).opening(), new LineWriter(OutputStream.nullOutputStream(), false), null);
          lines = text.lines();
        } catch (OddException e) {
          why = "what was made of it could not be read again: " + e.getMessage();
        }
      }
      long count = sources.stream().mapToLong(Part::count).sum();
      long sum = sources.stream().mapToLong(Part::checksum).sum();
      if (why == null && (lines == null || lines.count() != count || lines.sum() != sum)) {
        why = "what was made of it has other lines";
      }
      if (why != null) {
        for (Part source : sources) {
          all.left().add(new Left(source.file(), why));
        }
        return;
      }
      all.sources().addAll(sources);
      all.made().add(new Part(made, lines.count(), lines.sum()));
    }

    /** Why users may be wrong about the header of a CSV; null where nothing speaks for that. */
    private String doubt() {
      if (!form.isTold()) {
        return null;
      }
      boolean repeats = texts.stream().anyMatch(text -> text.lines().hasSeen());
      if (form.kind() == TextForm.Kind.CSV_WITH_HEADER) {
        boolean isHeader = form.looksLikeHeader(texts.get(0).opening()) && !repeats;
        return isHeader ? null : "its first line is a row as it seems, and no header; is there one?";
      }
      if (form.kind() == TextForm.Kind.CSV_WITHOUT_HEADER) {
        boolean alike = texts.stream().mapToLong(text -> text.lines().first()).distinct().count() == 1;
        return !alike || repeats || texts.get(0).lines().count() == 0
            ? null
            : "all files begin with the same line, which comes nowhere else; is it a header?";
      }
      return null;
    }
  }

  /** Writes lines, and before those of the first file what opens it. */
  private static final class LineWriter implements TextFile.Taker {
    private final OutputStream out;
    private final boolean opens;
    private boolean hasBegun;

    LineWriter(OutputStream out, boolean opens) {
      this.out = out;
      this.opens = opens;
    }

    @Override
    public void open(byte[] opening) throws IOException {
      if (opens) {
        lines(opening, opening.length);
      }
    }

    @Override
    public void lines(byte[] bytes, int length) throws IOException {
      hasBegun |= length > 0;
      NotWrittenException.write(out, bytes, 0, length);
    }
  }

  /** The new file could not be written, so nothing is known of the one that is read. */
  private static final class NotWrittenException extends IOException {
    private static final long serialVersionUID = 1L;

    private NotWrittenException(IOException cause) {
      super(cause.getMessage(), cause);
    }

    static void write(OutputStream out, byte[] bytes, int from, int length) throws NotWrittenException {
      try {
        out.write(bytes, from, length);
      } catch (IOException e) {
        throw new NotWrittenException(e);
      }
    }
  }

  /** Writes what is read to another place, too. */
  private static final class Tee extends FilterInputStream {
    private final OutputStream copy;

    Tee(InputStream in, OutputStream copy) {
      super(in);
      this.copy = copy;
    }

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] buffer, int offset, int length) throws IOException {
      int read = in.read(buffer, offset, length);
      if (read > 0) {
        NotWrittenException.write(copy, buffer, offset, read);
      }
      return read;
    }

    @Override
    public long skip(long count) throws IOException {
      return in.read(new byte[0]) < 0 ? 0 : in.readNBytes((int) Math.min(count, BUFFER)).length;
    }

    @Override
    public boolean markSupported() {
      return false;
    }
  }

  private static OutputStream output(OutputStream raw, CompressionCodec codec, Compressor compressor)
      throws IOException {
    return codec == null ? raw : codec.createOutputStream(raw, compressor);
  }
}
