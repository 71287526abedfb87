package io.pyspark.statestore.log;

import org.apache.hadoop.fs.Path;

/** Lets a test decide which SSTs are uploaded before their snapshot, and when. */
public final class Early {
    private Early() {}

    /** From now on files of so many bytes that are so old are uploaded early. */
    public static void from(long smallest, long graceMs) {
        EarlyFiles.smallest = smallest;
        EarlyFiles.graceMs = graceMs;
    }

    /** Forgets all stores that are open, as if their process had been killed. */
    public static void forgetAll() {
        EarlyFiles.OPEN.clear();
    }

    /** As in production. */
    public static void asEver() {
        from(64 << 10, 2000);
    }

    /** The files of a store that are uploaded and that no snapshot names. */
    public static String[] unpublished(String stateDirectory, String store) {
        return EarlyFiles.unpublished(new Path(stateDirectory), store + "/SSTs").toArray(String[]::new);
    }
}
