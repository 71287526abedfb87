package io.pyspark.statestore.testing;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.spark.SparkConf;
import org.apache.spark.io.CompressionCodec;

/**
 * Compresses nothing, and has a {@link Gate} called "row" before each write, with the writing thread's name: a heap store
 * whose codec this is can be stopped while it goes through its rows.
 */
public final class GatedCodec implements CompressionCodec {
    /** Called by Spark, by reflection. */
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
