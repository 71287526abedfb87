package io.pyspark.statestore.testing;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.format.Checksum;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.Header;
import io.pyspark.statestore.format.MergedFileWriter;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** Writes a merged file that a test describes in JSON, with the shim's writer. */
public final class MergedFileScript {
  private MergedFileScript() {}

  /**
   * Writes a local file.
   *
   * @param script {@code {"writer", "created_ms", "meta", "groups": [[{"put": path, "data": base64, "stamp",
   *     "generation"} or {"delete": path, "stamp", "writer"}, …], …], "seal": "no", "after" or "with" the last group}}
   */
  public static void write(String file, String script) throws IOException {
    JsonNode root = new ObjectMapper().readTree(script);
    long writer = root.get("writer").longValue();
    try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of(file)))) {
      Header header = Header.of(writer, root.get("created_ms").longValue(), root.get("meta").toString());
      MergedFileWriter merged = new MergedFileWriter(out, header);
      long stamp = 0;
      int left = root.get("groups").size();
      String seal = root.get("seal").textValue();
      List<String> paths = new ArrayList<>();
      for (JsonNode group : root.get("groups")) {
        List<Entry> entries = new ArrayList<>();
        announce(merged, group, --left == 0 && seal.equals("with") ? paths : List.of());
        for (JsonNode each : group) {
          paths.add(each.has("put") ? each.get("put").textValue() : each.get("delete").textValue());
          entries.add(each.has("put") ? put(merged, each, writer) : delete(each));
          stamp = Math.max(stamp, each.get("stamp").longValue());
        }
        if (left == 0 && seal.equals("with")) {
          merged.endGroupAndSeal(entries, stamp);
        } else {
          merged.endGroup(entries, stamp);
        }
      }
      if (seal.equals("after")) {
        merged.seal(stamp);
      }
    }
  }

  /** Announces a group, whose index also repeats the entries of the paths in {@code before}. */
  private static void announce(MergedFileWriter merged, JsonNode group, List<String> before) throws IOException {
    List<String> paths = new ArrayList<>(before);
    long length = 0;
    for (JsonNode each : group) {
      paths.add(each.has("put") ? each.get("put").textValue() : each.get("delete").textValue());
      length += each.has("put") ? Base64.getDecoder().decode(each.get("data").textValue()).length : 0;
    }
    merged.announce(length, paths);
  }

  private static Entry put(MergedFileWriter merged, JsonNode put, long writer) throws IOException {
    String path = put.get("put").textValue();
    byte[] data = Base64.getDecoder().decode(put.get("data").textValue());
    long offset = merged.payload(data.length, target -> target.write(data));
    int crc = Checksum.crc32c(data, 0, data.length);
    return new Entry(
        Entry.PUT,
        Entry.typeOf(path),
        put.get("generation").intValue(),
        crc,
        put.get("stamp").longValue(),
        writer,
        offset,
        data.length,
        0,
        path);
  }

  private static Entry delete(JsonNode delete) {
    return Entry.tombstone(
        delete.get("delete").textValue(), 0, delete.get("stamp").longValue(), delete.get("writer").longValue());
  }
}
