package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.hadoop.fs.Path;

/** The local disk under {@code slowflush:}, which counts calls; a flush takes a millisecond, as on data nodes. */
public final class SlowFlushFileSystem extends ObservedFileSystem {
  @Override
  public String getScheme() {
    return "slowflush";
  }

  @Override
  protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
    if (operation.equals("hflush")) {
      try {
        Thread.sleep(1);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new InterruptedIOException("interrupted in hflush of " + path);
      }
    }
    return super.aroundData(operation, path, body);
  }
}
