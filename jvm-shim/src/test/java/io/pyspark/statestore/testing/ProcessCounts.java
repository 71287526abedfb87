package io.pyspark.statestore.testing;

import org.apache.spark.sql.api.java.UDF1;

/** For SQL: what the test file systems have counted in the process that a task runs in, and which process that is. */
public final class ProcessCounts implements UDF1<Long, String> {
    private static final long serialVersionUID = 1L;

    /** Takes as long as the argument says, in milliseconds, so that other executors get tasks, too. */
    @Override
    public String call(Long millis) throws InterruptedException {
        Thread.sleep(millis);
        return "{\"pid\": " + ProcessHandle.current().pid() + ", \"counts\": " + Counters.snapshotJson() + "}";
    }
}
