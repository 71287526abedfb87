package io.pyspark.statestore.files;

import io.pyspark.statestore.format.Header;
import java.security.SecureRandom;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.regex.Pattern;

/** This process as a writer of one checkpoint: its id, and the names and headers of its files. */
public final class WriterIdentity {
  /** False where the checkpoint was begun with merging, so that no plain state file can exist in it. */
  private static final Pattern BORN_MERGED = Pattern.compile("\"plain\"\\s*:\\s*false");

  private final long id = new SecureRandom().nextLong() >>> 1;
  private final AtomicInteger files = new AtomicInteger();
  private final Supplier<Map<String, String>> processFields;
  private final BooleanSupplier bornMerged;

  /**
   * @param processFields what a header says of this process
   * @param bornMerged whether the checkpoint was begun with merging
   */
  public WriterIdentity(Supplier<Map<String, String>> processFields, BooleanSupplier bornMerged) {
    this.processFields = processFields;
    this.bornMerged = bornMerged;
  }

  public long id() {
    return id;
  }

  /** A name that no other file of the checkpoint has; {@code createdMs} is wall time. */
  public String nextFileName(long createdMs, String suffix) {
    return String.format("%013d-%016x-%d%s", createdMs, id, files.incrementAndGet(), suffix);
  }

  public Header header(long createdMs) {
    return Header.of(id, createdMs, json(processFields.get(), bornMerged.getAsBoolean()));
  }

  /** Whether a header's JSON says that the checkpoint was begun with merging. */
  public static boolean saysBornMerged(String json) {
    return BORN_MERGED.matcher(json).find();
  }

  private static String json(Map<String, String> fields, boolean bornMerged) {
    StringJoiner json = new StringJoiner(",", "{", "}");
    fields.forEach((key, value) -> json.add(quote(key) + ":" + quote(value)));
    json.add("\"plain\":" + !bornMerged);
    json.add(quote(Header.FRONTS) + ":true");
    return json.toString();
  }

  private static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 0x20) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
