package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;

/**
 * The local disk, with a {@link Handshake} where a task of a streaming query flushes: {@code flush-<batch>-<partition>}
 * before it, {@code flushed-<batch>-<partition>} after it, in the directory {@code fs.handshake.directory}. A task that
 * is interrupted there sees what HDFS's client throws.
 */
public final class HandshakeFileSystem extends ObservedFileSystem {
    @Override
    public String getScheme() {
        return "handshake";
    }

    @Override
    protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
        TaskContext task = TaskContext.get();
        if (task == null || !operation.equals("hflush")) {
            return super.aroundData(operation, path, body);
        }
        String name = "-" + task.getLocalProperty("streaming.sql.batchId") + "-" + task.partitionId();
        stop("flush" + name);
        long result = super.aroundData(operation, path, body);
        stop("flushed" + name);
        return result;
    }

    private void stop(String place) throws IOException {
        try {
            Handshake.stop(place, getConf().get("fs.handshake.directory"));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw (IOException) new InterruptedIOException("interrupted at " + place).initCause(e);
        }
    }
}
