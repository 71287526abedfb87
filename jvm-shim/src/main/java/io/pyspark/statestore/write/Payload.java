package io.pyspark.statestore.write;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** The bytes of one logical file, collected before they are queued in a lane. */
public interface Payload extends Closeable {
  /** In bytes. */
  long length();

  void writeTo(OutputStream out) throws IOException;

  /** The local file that has the bytes; null where they are elsewhere. */
  default Path file() {
    return null;
  }

  /** Nothing more is written to it, and it may have to wait: frees what only writing needs. */
  default void finish() throws IOException {}

  /** Frees the memory or the local file; may be called twice. */
  @Override
  void close();

  /** Makes a payload of a local file, which is deleted with it. */
  static Payload ofFile(Path file) throws IOException {
    long length = Files.size(file);
    return new Payload() {
      @Override
      public long length() {
        return length;
      }

      @Override
      public Path file() {
        return file;
      }

      @Override
      public void writeTo(OutputStream out) throws IOException {
        try (InputStream in = Files.newInputStream(file)) {
          if (in.transferTo(out) != length) {
            throw new IOException(file + " changed while it was written to a merged file");
          }
        }
      }

      @Override
      public void close() {
        LocalSpace.deleteQuietly(file);
      }
    };
  }
}
