package io.pyspark.statestore.write;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Collects what is written to one logical file: in memory while the shared bound allows, then in a local spill file.
 * One thread writes; another may call {@link #close()}.
 */
public final class PayloadBuffer extends OutputStream implements Payload {
  /** A change of a few rows takes no more; each chunk after it is twice as long. */
  private static final int FIRST_CHUNK = 512;

  private static final int MAX_CHUNK = 1024 * 1024;

  private final LocalSpace space;
  private final List<byte[]> chunks = new ArrayList<>();
  private int usedOfLast;
  private long reserved;
  private long length;
  private Path spillFile;

  /** Null where there is no spill file, or it is whole. */
  private OutputStream spill;

  private boolean closed;

  PayloadBuffer(LocalSpace space) {
    this.space = space;
  }

  @Override
  public void write(int b) throws IOException {
    write(new byte[] {(byte) b}, 0, 1);
  }

  @Override
  public synchronized void write(byte[] bytes, int offset, int count) throws IOException {
    if (closed || spillFile != null && spill == null) {
      throw new IOException("The stream is closed");
    }
    int from = offset;
    int left = count;
    while (left > 0 && spill == null) {
      int room = chunks.isEmpty() ? 0 : chunks.get(chunks.size() - 1).length - usedOfLast;
      if (room == 0) {
        addChunkOrSpill();
        continue;
      }
      int n = Math.min(room, left);
      System.arraycopy(bytes, from, chunks.get(chunks.size() - 1), usedOfLast, n);
      usedOfLast += n;
      from += n;
      left -= n;
    }
    if (left > 0) {
      spill.write(bytes, from, left);
    }
    length += count;
  }

  private void addChunkOrSpill() throws IOException {
    int size = chunks.isEmpty() ? FIRST_CHUNK : Math.min(MAX_CHUNK, 2 * chunks.get(chunks.size() - 1).length);
    if (space.reserve(size)) {
      reserved += size;
      chunks.add(new byte[size]);
      usedOfLast = 0;
      return;
    }
    spillFile = space.newFile(".spill");
    spill = new BufferedOutputStream(Files.newOutputStream(spillFile), 64 * 1024);
    writeChunks(spill);
    freeMemory();
  }

  @Override
  public synchronized long length() {
    return length;
  }

  @Override
  public synchronized void flush() throws IOException {
    if (spill != null) {
      spill.flush();
    }
  }

  @Override
  public synchronized void writeTo(OutputStream out) throws IOException {
    if (closed) {
      throw new IOException("The stream is closed");
    }
    writeChunks(out);
    if (spillFile != null) {
      flush();
      Files.copy(spillFile, out);
    }
  }

  /** Nothing more is written. What was spilled needs no open file as long as the payload waits. */
  @Override
  public synchronized void finish() throws IOException {
    if (spill != null) {
      spill.close();
      spill = null;
    }
  }

  private void writeChunks(OutputStream out) throws IOException {
    for (int i = 0; i < chunks.size(); i++) {
      byte[] chunk = chunks.get(i);
      out.write(chunk, 0, i == chunks.size() - 1 ? usedOfLast : chunk.length);
    }
  }

  private void freeMemory() {
    chunks.clear();
    space.release(reserved);
    reserved = 0;
  }

  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    closed = true;
    freeMemory();
    try {
      finish();
    } catch (IOException e) {
      // The file is deleted, with whatever is still in the buffer.
    }
    if (spillFile != null) {
      LocalSpace.deleteQuietly(spillFile);
    }
  }
}
