package io.pyspark.statestore.testing;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf$;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;

/** Drives Spark's RocksDB class on one store step by step, without a query, as Spark's suites do. */
public final class RocksDBStore implements AutoCloseable {
    private static final String FAMILY = "default";

    private final RocksDB db;

    /**
     * Opens a store; nothing is loaded yet.
     *
     * @param directory the store's, with a merged scheme for a merged one: {@code …/state/0/0}
     * @param settings the SQL session's, by their whole keys
     * @param hadoop the settings of Hadoop
     */
    public RocksDBStore(String directory, Map<String, String> settings, Map<String, String> hadoop) throws IOException {
        SQLConf sql = new SQLConf();
        settings.forEach(sql::setConfString);
        Configuration conf = new Configuration();
        hadoop.forEach(conf::set);
        File local = Files.createTempDirectory("rocksdb").toFile();
        Path root = new Path(directory);
        db = new RocksDB(
                root.toString(),
                RocksDBConf$.MODULE$.apply(new StateStoreConf(sql, scala.collection.immutable.Map$.MODULE$.empty())),
                local,
                conf,
                root.getName(),
                false,
                false,
                0,
                Option.empty(),
                Option.empty());
    }

    /** Loads a version. */
    public void load(long version) {
        db.load(version, Option.empty(), false, false);
    }

    /** Puts a row into what is loaded. */
    public void put(String key, String value) {
        db.put(bytes(key), bytes(value), FAMILY, false, false, false);
    }

    /** The value of a key in what is loaded, or null. */
    public String get(String key) {
        byte[] value = db.get(bytes(key), FAMILY);
        return value == null ? null : new String(value, StandardCharsets.UTF_8);
    }

    /** Commits the next version. */
    public void commit() {
        db.commit(false);
    }

    /** Uploads the snapshots that wait for it, in a thread that is named like Spark's maintenance. */
    public void upload() throws Throwable {
        onMaintenanceThread(db::doSnapshotMaintenance);
    }

    /** Deletes old versions, in a thread that is named like Spark's maintenance. */
    public void cleanUp() throws Throwable {
        onMaintenanceThread(db::doCleanupMaintenance);
    }

    private static void onMaintenanceThread(Runnable action) throws Throwable {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread thread = new Thread(action, "state-store-maintenance-thread-test");
        thread.setDaemon(true);
        thread.setUncaughtExceptionHandler((t, e) -> failure.set(e));
        thread.start();
        thread.join();
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    /** Forgets what was not committed. The next load starts from the files. */
    public void rollback() {
        db.rollback();
    }

    @Override
    public void close() {
        db.close();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
