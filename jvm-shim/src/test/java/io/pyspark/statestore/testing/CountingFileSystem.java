package io.pyspark.statestore.testing;

/** The local disk under {@code counting:}, with exact call counts and an optional delay; hflush and hsync work. */
public class CountingFileSystem extends ObservedFileSystem {
    @Override
    public String getScheme() {
        return "counting";
    }
}
