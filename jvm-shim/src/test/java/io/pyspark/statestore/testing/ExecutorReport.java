package io.pyspark.statestore.testing;

import org.apache.spark.SparkEnv;

/** What an executor can say of itself in a query: {@code SELECT reflect('…ExecutorReport', 'counts')}. */
public final class ExecutorReport {
    private ExecutorReport() {}

    /** {@code <executor id> <process id> <counts of the test file systems as JSON>}. */
    public static String counts() {
        SparkEnv env = SparkEnv.get();
        return (env == null ? "" : env.executorId()) + " " + ProcessHandle.current().pid() + " "
                + Counters.snapshotJson();
    }
}
