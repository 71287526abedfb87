package io.pyspark.statestore.testing;

/**
 * The local disk under {@code counting:}, which counts its calls and delays them if a test wants. hflush and hsync
 * work.
 *
 * <p>It counts what an HDFS client asks its NameNode. To write a file is a create, an addBlock when the first bytes
 * leave the client, and a complete when the file is closed; to flush an open file is nothing.
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
