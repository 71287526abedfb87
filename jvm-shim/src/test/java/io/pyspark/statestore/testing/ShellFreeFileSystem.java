package io.pyspark.statestore.testing;

import org.apache.hadoop.fs.LocalFileSystem;

/** {@code file:} as Hadoop has it, checksum files included, on {@link ShellFreeDisk}. */
public final class ShellFreeFileSystem extends LocalFileSystem {
    public ShellFreeFileSystem() {
        super(new ShellFreeDisk());
    }
}
