package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Header;
import java.util.Map;
import java.util.StringJoiner;
import java.util.regex.Pattern;

/** The JSON object in a merged file's header: who wrote it. */
final class HeaderMeta {
  /** False where the checkpoint was begun with merging: no plain state file exists in it. */
  private static final Pattern BORN_MERGED = Pattern.compile("\"plain\"\\s*:\\s*false");

  private HeaderMeta() {}

  static boolean saysBornMerged(String json) {
    return BORN_MERGED.matcher(json).find();
  }

  static String json(Map<String, String> identity, boolean bornMerged) {
    StringJoiner json = new StringJoiner(",", "{", "}");
    identity.forEach((key, value) -> json.add(quote(key) + ":" + quote(value)));
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
