package io.pyspark.statestore.testing;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.spark.SparkConf;
import org.apache.spark.io.CompressionCodec;

/**
 * A codec that compresses nothing and passes the {@link Gate} "row", with the thread's name, before each write. A test
 * uses it to stop a heap store that is writing its rows.
 */
public final class GatedCodec implements CompressionCodec {
  /** Spark calls this by reflection. */
  public GatedCodec(SparkConf conf) {}

  @Override
  public OutputStream compressedOutputStream(OutputStream out) {
    return new FilterOutputStream(out) {
      @Override
      public void write(int b) throws IOException {
        Gate.pass("row", Thread.currentThread().getName());
        out.write(b);
      }

      @Override
      public void write(byte[] bytes, int offset, int length) throws IOException {
        Gate.pass("row", Thread.currentThread().getName());
        out.write(bytes, offset, length);
      }
    };
  }

  @Override
  public InputStream compressedInputStream(InputStream in) {
    return in;
  }

  @Override
  public InputStream compressedContinuousInputStream(InputStream in) {
    return in;
  }
}
