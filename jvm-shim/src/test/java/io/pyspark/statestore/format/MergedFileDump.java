package io.pyspark.statestore.format;

import io.pyspark.statestore.StateStoreFilesException;
import java.io.IOException;
import java.io.RandomAccessFile;

/** Shows a merged file as JSON, so that tests compare what Java and Python read from it. */
public final class MergedFileDump {
  private MergedFileDump() {}

  /**
   * Reads a local file: its header, groups and valid length, or {@code {"error": id, "message": …}} if it is refused.
   */
  public static String dump(String file) throws IOException {
    try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
      return json(MergedFileReader.read(ranges(file, in)));
    } catch (StateStoreFilesException e) {
      return "{\"error\": " + quote(e.id().name()) + ", \"message\": " + quote(e.getMessage()) + "}";
    }
  }

  private static RangeSource ranges(String file, RandomAccessFile in) throws IOException {
    long length = in.length();
    return new RangeSource() {
      @Override
      public String name() {
        return file;
      }

      @Override
      public long length() {
        return length;
      }

      @Override
      public void readFully(long position, byte[] buffer, int offset, int count) throws IOException {
        in.seek(position);
        in.readFully(buffer, offset, count);
      }
    };
  }

  private static String json(MergedFileReader.Parsed parsed) {
    StringBuilder out = new StringBuilder("{\"valid_length\": " + parsed.validLength());
    out.append(", \"length\": ").append(parsed.length()).append(", \"sealed\": ").append(parsed.isSealed());
    out.append(", \"accounted\": ").append(parsed.accounted());
    Header header = parsed.header();
    if (header != null) {
      out.append(", \"writer\": ").append(header.writer()).append(", \"created_ms\": ").append(header.createdMs());
      out.append(", \"meta\": ").append(header.metaJson());
    }
    out.append(", \"groups\": [");
    for (Group group : parsed.groups()) {
      out.append(group == parsed.groups().get(0) ? "" : ", ").append(json(group));
    }
    return out.append("]}").toString();
  }

  private static String json(Group group) {
    Trailer t = group.trailer();
    StringBuilder out = new StringBuilder("{\"trailer_offset\": " + group.trailerOffset());
    out.append(", \"flags\": ").append(t.flags()).append(", \"index_offset\": ").append(t.indexOffset());
    out.append(", \"previous\": ").append(t.previous()).append(", \"group_stamp\": ").append(t.groupStamp());
    out.append(", \"names\": [");
    for (int i = 0; i < group.names().size(); i++) {
      out.append(i == 0 ? "" : ", ").append(quote(group.names().get(i)));
    }
    out.append("], \"entries\": [");
    for (int i = 0; i < group.entries().size(); i++) {
      Entry e = group.entries().get(i);
      out.append(i == 0 ? "" : ", ")
          .append(
              String.format(
                  "{\"kind\": %d, \"type\": %d, \"generation\": %d, \"crc32c\": %d, \"stamp\": %d, \"writer\": %d, "
                      + "\"offset\": %d, \"length\": %d, \"file_ref\": %d, \"path\": %s}",
                  e.kind(),
                  e.type(),
                  e.generation(),
                  Integer.toUnsignedLong(e.crc32c()),
                  e.stamp(),
                  e.writer(),
                  e.offset(),
                  e.length(),
                  e.fileRef(),
                  quote(e.path())));
    }
    return out.append("]}").toString();
  }

  private static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 0x20 || c > 0x7e) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
