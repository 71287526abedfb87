package io.pyspark.statestore.testing;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;

/**
 * The local disk under {@code killing:}, where {@link Killer} ends processes at chosen calls on merged files. What was
 * not flushed never reaches the disk, as on HDFS.
 *
 * <p>Its points are {@code create.<kind>}, {@code open.<kind>}, {@code rename.<kind>} and {@code delete.<kind>}. The
 * kind is {@code merged} or {@code relocating}; of a file sink {@code staged}, {@code joined}, {@code waiting}, {@code
 * published} or {@code sinklog}. And for each group that is flushed {@code flush.commit}, {@code flush.snapshot},
 * {@code flush.relocation}, {@code flush.tombstones} or {@code flush.seal}, by what is in the group's index.
 */
public final class KillingFileSystem extends ObservedFileSystem {
  private static final int TRAILER = 64;
  private static final int ENTRY = 48;
  private static final int SST = 1;
  private static final int SNAPSHOT = 3;

  @Override
  public String getScheme() {
    return "killing";
  }

  @Override
  protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
    String kind = kindOf(path);
    if (kind == null) {
      return super.around(operation, path, body);
    }
    String point = operation + "." + kind;
    Killer.Order order = Killer.due(point, path.toString());
    if (order != null && order.fraction() < 1) {
      order.carryOut();
    }
    T result = super.around(operation, path, body);
    if (order != null) {
      order.carryOut();
    }
    return result;
  }

  private static String kindOf(Path path) {
    String name = path.getName();
    String all = path.toString();
    if (all.contains("/_staging/")) {
      return all.contains("/_joined/") ? "joined" : "staged";
    }
    if (all.contains("/_waiting/")) {
      return "waiting";
    }
    if (all.contains("/_spark_metadata/")) {
      return "sinklog";
    }
    if (name.startsWith("part-")) {
      return "published";
    }
    return name.endsWith(".merged") ? "merged" : name.endsWith(".relocating") ? "relocating" : null;
  }

  @Override
  protected ObservedOutputStream observe(Path path, FSDataOutputStream stream) {
    return "merged".equals(kindOf(path)) ? new Groups(path, stream) : super.observe(path, stream);
  }

  /** A merged file that is being written. */
  private final class Groups extends ObservedOutputStream {
    private final ByteArrayOutputStream pending = new ByteArrayOutputStream();
    private long flushed;

    Groups(Path path, FSDataOutputStream inner) {
      super(KillingFileSystem.this, path, inner);
      this.flushed = inner.getPos();
    }

    @Override
    public void write(byte[] b, int off, int len) {
      pending.write(b, off, len);
    }

    @Override
    public void flush() {
      // Not an hflush: as on HDFS, the bytes stay here.
    }

    @Override
    public void hflush() throws IOException {
      writePending();
      super.hflush();
      Killer.passed(path.toString());
    }

    @Override
    public void hsync() throws IOException {
      writePending();
      super.hsync();
      Killer.passed(path.toString());
    }

    @Override
    public void close() throws IOException {
      writePending();
      super.close();
    }

    private void writePending() throws IOException {
      byte[] bytes = pending.toByteArray();
      pending.reset();
      if (bytes.length == 0) {
        return;
      }
      String group = groupIn(bytes, flushed);
      Killer.Order order = group == null ? null : Killer.due("flush." + group, path.toString());
      flushed += bytes.length;
      if (order == null) {
        super.write(bytes, 0, bytes.length);
        return;
      }
      super.write(bytes, 0, (int) (bytes.length * order.fraction()));
      super.hflush();
      order.carryOut();
      // Another process was the victim, and this one goes on.
      int written = (int) (bytes.length * order.fraction());
      super.write(bytes, written, bytes.length - written);
    }
  }

  /** The kind of group that ends these bytes; null if none does. */
  private static String groupIn(byte[] bytes, long position) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    int trailer = bytes.length - TRAILER;
    if (trailer < 0 || !new String(bytes, trailer, 8, java.nio.charset.StandardCharsets.US_ASCII).equals("PSSGROUP")) {
      return null;
    }
    if ((buffer.getInt(trailer + 8) & 1) != 0) {
      return "seal";
    }
    String found = "tombstones";
    int index = (int) (buffer.getLong(trailer + 16) - position);
    for (int entry = index; entry < index + ENTRY * buffer.getInt(trailer + 12); entry += ENTRY) {
      boolean put = buffer.get(entry) == 1;
      int type = buffer.get(entry + 1);
      if (put && buffer.getShort(entry + 2) != 0) {
        return "relocation";
      }
      if (put && (type == SST || type == SNAPSHOT)) {
        found = "snapshot";
      } else if (put && !found.equals("snapshot")) {
        found = "commit";
      }
    }
    return found;
  }
}
