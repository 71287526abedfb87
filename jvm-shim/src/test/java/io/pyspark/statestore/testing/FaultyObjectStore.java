package io.pyspark.statestore.testing;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;

/** {@link ObjectStoreLikeFileSystem} under {@code faultystore:}, whose calls fail as {@link Faults} says. */
public final class FaultyObjectStore extends ObjectStoreLikeFileSystem {
  @Override
  public String getScheme() {
    return "faultystore";
  }

  @Override
  protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
    return FaultyFileSystem.faulty(operation, path, () -> super.around(operation, path, body));
  }

  @Override
  protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
    return FaultyFileSystem.faultyData(operation, path, () -> super.aroundData(operation, path, body));
  }

  @Override
  protected ObservedOutputStream observe(Path path, FSDataOutputStream stream) {
    return new FaultyOutputStream(this, path, stream, null);
  }
}
