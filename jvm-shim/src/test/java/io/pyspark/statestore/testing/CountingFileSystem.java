package io.pyspark.statestore.testing;

/**
 * The local disk under {@code counting:}, with exact call counts and an optional delay; hflush and hsync work.
 *
 * <p>Counted is what an HDFS client asks its NameNode: writing a file is a create, an addBlock when its first bytes leave
 * the client and a complete when it is closed; flushing an open file is nothing.
 */
public class CountingFileSystem extends ObservedFileSystem {
    @Override
    public String getScheme() {
        return "counting";
    }

    @Override
    protected boolean allocatesBlocks() {
        return true;
    }
}
