package io.pyspark.statestore.format;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/**
 * The start of a merged file: who writes it, and how the rest has to be read.
 *
 * @param writer the id of the process that writes the file
 * @param createdMs the time at which the file was begun, in Unix milliseconds
 * @param metaJson a JSON object; readers ignore keys that they do not know
 * @param length bytes of the header in the file
 * @param hasFronts whether each group begins with a {@link Front}
 * @param isWhole whether the file got its name only when it was sealed
 */
public record Header(long writer, long createdMs, String metaJson, int length, boolean hasFronts, boolean isWhole) {
  public static final byte[] MAGIC = "PSSMERG1".getBytes(StandardCharsets.US_ASCII);

  /** Bytes of the magic without its last one, the version digit. */
  private static final int FAMILY_LENGTH = 7;

  private static final int FIXED = 8 + 4 + 8 + 8 + 4;
  static final int MIN_LENGTH = FIXED + 4;
  static final int MAX_LENGTH = 1 << 20;

  /** The key in the meta that says whether each group begins with a front. */
  public static final String FRONTS = "fronts";

  private static final String WHOLE = "whole";
  private static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  /**
   * Makes the header of a new file.
   *
   * @throws IllegalArgumentException if the meta is not a JSON object, or one of its values has the wrong type
   */
  public static Header of(long writer, long createdMs, String metaJson) {
    byte[] meta = metaJson.getBytes(StandardCharsets.UTF_8);
    JsonNode parsed = parse(meta);
    if (parsed == null) {
      throw new IllegalArgumentException("Not the meta of a header: " + metaJson);
    }
    return of(writer, createdMs, metaJson, MIN_LENGTH + meta.length, parsed);
  }

  private static Header of(long writer, long createdMs, String metaJson, int length, JsonNode meta) {
    return new Header(writer, createdMs, metaJson, length, meta.path(FRONTS).asBoolean(), meta.path(WHOLE).asBoolean());
  }

  public byte[] encode() {
    byte[] meta = metaJson.getBytes(StandardCharsets.UTF_8);
    ByteBuffer out = ByteBuffer.allocate(MIN_LENGTH + meta.length).order(ByteOrder.LITTLE_ENDIAN);
    out.put(MAGIC).putInt(out.capacity()).putLong(writer).putLong(createdMs).putInt(meta.length).put(meta);
    out.putInt(Checksum.crc32c(out.array(), 0, out.position()));
    return out.array();
  }

  /**
   * Reads the header from a file's first bytes.
   *
   * @param prefix the first {@link #MAX_LENGTH} bytes of the file, or all if there are fewer
   * @return the header; null if the file ends inside it or is all zeros: its writer, or the machine, died before the
   *     first flush
   * @throws StateStoreFilesException if this is not a merged file, has another version, or is damaged
   */
  static Header decode(String file, byte[] prefix) throws StateStoreFilesException {
    if (Front.isZero(prefix)) {
      return null;
    }
    int magicSeen = Math.min(prefix.length, FAMILY_LENGTH);
    if (!Arrays.equals(prefix, 0, magicSeen, MAGIC, 0, magicSeen)) {
      throw new StateStoreFilesException(
          Id.PSS_CORRUPT_FILE,
          file
              + " is not a merged file: it does not start with PSSMERG. "
              + "Move it out of the _merged directory, which holds nothing else.");
    }
    if (prefix.length > FAMILY_LENGTH && prefix[FAMILY_LENGTH] != MAGIC[FAMILY_LENGTH]) {
      throw new StateStoreFilesException(
          Id.PSS_UNSUPPORTED_FORMAT_VERSION,
          file
              + " has format version "
              + printable(prefix[FAMILY_LENGTH])
              + "; this release reads version "
              + (char) MAGIC[FAMILY_LENGTH]
              + ". Use the pyspark_statestore release that wrote it, or a newer one.");
    }
    if (prefix.length < FIXED) {
      return null;
    }
    ByteBuffer in = ByteBuffer.wrap(prefix).order(ByteOrder.LITTLE_ENDIAN);
    in.position(MAGIC.length);
    int length = in.getInt();
    long writer = in.getLong();
    long created = in.getLong();
    int metaLength = in.getInt();
    if (length < MIN_LENGTH || length > MAX_LENGTH || metaLength != length - MIN_LENGTH) {
      throw damaged(file, "its header's length " + length + " cannot be right");
    }
    if (prefix.length < length) {
      return null;
    }
    if (in.getInt(length - 4) != Checksum.crc32c(prefix, 0, length - 4)) {
      throw damaged(file, "its header's checksum does not match");
    }
    if (writer < 0 || created < 0) {
      throw damaged(file, "its header's writer or time is out of range");
    }
    byte[] utf8 = Arrays.copyOfRange(prefix, FIXED, FIXED + metaLength);
    JsonNode meta = parse(utf8);
    if (meta == null) {
      throw damaged(file, "its header's meta is not a JSON object, or a value in it has the wrong type");
    }
    return of(writer, created, new String(utf8, StandardCharsets.UTF_8), length, meta);
  }

  /** The meta; null if it is not a JSON object, or one of its values has the wrong type. */
  private static JsonNode parse(byte[] utf8) {
    try {
      String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString();
      JsonNode meta = JSON.readTree(text);
      return meta.isObject() && isTyped(meta) ? meta : null;
    } catch (CharacterCodingException | JsonProcessingException e) {
      return null;
    }
  }

  private static boolean isTyped(JsonNode meta) {
    for (String key : List.of("app_id", "executor_id", "query_run_id", "shim")) {
      if (meta.has(key) && !meta.get(key).isTextual()) {
        return false;
      }
    }
    for (String key : List.of("plain", FRONTS, WHOLE)) {
      if (meta.has(key) && !meta.get(key).isBoolean()) {
        return false;
      }
    }
    return true;
  }

  private static String printable(byte b) {
    return b > 32 && b < 127 ? String.valueOf((char) b) : String.format("0x%02x", b);
  }

  private static StateStoreFilesException damaged(String file, String what) {
    return new StateStoreFilesException(
        Id.PSS_CORRUPT_FILE,
        file + " is damaged at offset 0: " + what + ". Restore the file from a copy; nothing was changed or deleted.");
  }
}
