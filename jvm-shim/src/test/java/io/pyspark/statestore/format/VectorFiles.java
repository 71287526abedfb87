package io.pyspark.statestore.format;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Writes the Java half of {@code tests/vectors}: a small merged file of each kind, the same bytes every time. */
public final class VectorFiles {
  private static final long WRITER = 0x0123456789abcdefL;
  private static final long CREATED_MS = 1_700_000_000_000L;
  private static final long STAMP = CREATED_MS << 16;

  private VectorFiles() {}

  /** Writes the files into a directory, which is made if it is missing. */
  public static void write(String into) throws IOException {
    Path directory = Files.createDirectories(Path.of(into));
    try (File f = new File(directory, "empty.merged")) {
      f.out.flush();
    }
    try (File f = new File(directory, "one-group.merged")) {
      f.group(f.put("0/0/1.changelog", "first"), f.put("0/0/1.changelog.crc", ""));
    }
    try (File f = new File(directory, "groups-and-tombstones.merged")) {
      f.group(f.put("0/0/1.delta", "one"), f.put("0/1/1.delta", "uno"));
      f.group(f.put("0/0/2.delta", "two"), Entry.tombstone("0/0/1.delta", 0, STAMP + 1, WRITER));
      f.group(f.put("0/0/left-keyToNumValues/SSTs/000008-ä.sst", "x".repeat(1000)));
    }
    try (File f = new File(directory, "sealed.merged")) {
      f.group(f.put("0/0/1.delta", "one"));
      f.group(f.put("0/0/2.delta", "two"));
      f.writer.seal(f.stamp());
    }
    try (File f = new File(directory, "sealed-at-once.merged")) {
      f.writer.endGroupAndSeal(List.of(f.put("0/0/3.zip", "zip")), f.stamp());
    }
    try (File f = new File(directory, "index-only.merged")) {
      Entry copied = new Entry(Entry.PUT, Entry.TYPE_DELTA, 3, 0x9a8b7c6d, STAMP + 9, WRITER, 77, 3, 2, "0/5/9.delta");
      f.sealAs(Trailer.INDEX_ONLY, copied, List.of(name(1), name(2)));
    }
    try (File f = new File(directory, "reference.merged")) {
      Entry referred =
          new Entry(Entry.PUT, Entry.TYPE_DELTA, 0, 0x1a2b3c4d, STAMP + 8, WRITER, 99, 4, 2, "0/5/8.delta");
      List<String> paths = List.of("/state/_merged/" + name(1), "/checkpoints/ä b/state/_merged/" + name(2));
      f.sealAs(Trailer.FOREIGN, referred, paths);
    }
    try (File f = new File(directory, "torn.merged")) {
      f.group(f.put("0/0/1.delta", "one"));
      f.put("0/0/2.delta", "never finished");
    }
    writeWithFronts(directory);
  }

  private static void writeWithFronts(Path directory) throws IOException {
    try (File f = new File(directory, "fronts.merged", true)) {
      f.announcedGroup("0/0/1.delta", "one");
      f.announcedGroup("0/0/2.delta", "");
      f.writer.announce(20, List.of("0/0/3.delta", "0/0/4.delta"));
      f.writer.payload(7, target -> target.write("dropped".getBytes(StandardCharsets.UTF_8)));
      f.group(f.put("0/0/4.delta", "padded"));
      f.writer.seal(f.stamp());
    }
    try (File f = new File(directory, "fronts-index-only.merged", true)) {
      Entry put = new Entry(Entry.PUT, Entry.TYPE_DELTA, 0, 0x9a8b7c6d, STAMP + 9, WRITER, 77, 3, 2, "0/5/9.delta");
      Entry deleted = Entry.tombstone("0/5/8-ä.delta", 1, STAMP + 8, WRITER).in(1);
      f.writer.sealIndexOnly(List.of(deleted, put), List.of(name(1), name(2)), f.stamp());
    }
    try (File f = new File(directory, "fronts-torn.merged", true)) {
      f.announcedGroup("0/0/1.delta", "one");
      f.writer.announce(1000, List.of("0/0/2.delta"));
      f.put("0/0/2.delta", "never finished");
    }
  }

  private static String name(int n) {
    return String.format("%013d-%016x-%d.merged", CREATED_MS, WRITER, n);
  }

  private static final class File implements AutoCloseable {
    private final OutputStream out;
    private final MergedFileWriter writer;
    private long stamp = STAMP;

    File(Path directory, String name) throws IOException {
      this(directory, name, false);
    }

    File(Path directory, String name, boolean fronts) throws IOException {
      out = new BufferedOutputStream(Files.newOutputStream(directory.resolve(name)));
      String meta = "{\"app_id\":\"vectors\",\"plain\":false" + (fronts ? ",\"fronts\":true}" : "}");
      writer = new MergedFileWriter(out, Header.of(WRITER, CREATED_MS, meta));
    }

    void announcedGroup(String path, String text) throws IOException {
      writer.announce(text.length(), List.of(path));
      group(put(path, text));
    }

    long stamp() {
      return ++stamp;
    }

    Entry put(String path, String text) throws IOException {
      byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
      long offset = writer.payload(bytes.length, target -> target.write(bytes));
      int crc = Checksum.crc32c(bytes, 0, bytes.length);
      return new Entry(Entry.PUT, Entry.typeOf(path), 0, crc, stamp(), WRITER, offset, bytes.length, 0, path);
    }

    void group(Entry... entries) throws IOException {
      writer.endGroup(new ArrayList<>(List.of(entries)), stamp());
    }

    /**
     * Ends a file with an entry of another one, without a front. Only Python writes reference files outside of tests.
     */
    void sealAs(int flag, Entry entry, List<String> names) throws IOException {
      writer.end(new IndexBlock(List.of(entry), names), Trailer.SEALED | Trailer.CUMULATIVE | flag, stamp());
    }

    @Override
    public void close() throws IOException {
      out.close();
    }
  }
}
