package io.pyspark.statestore.testing;

import java.io.IOException;
import org.apache.hadoop.fs.Path;

/** File systems on the local disk that pass a {@link Gate} before and after each call. */
public final class GatedFileSystems {
  private GatedFileSystems() {}

  /** Scheme {@code gated}: hflush works. */
  public static final class Disk extends ObservedFileSystem {
    @Override
    public String getScheme() {
      return "gated";
    }

    @Override
    protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
      return gated(operation, path, () -> super.around(operation, path, body));
    }

    @Override
    protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
      return gated(operation, path, () -> super.aroundData(operation, path, body));
    }
  }

  /** Scheme {@code gatedstore}: a file is visible once it is closed, and there is no hflush. */
  public static final class Store extends ObjectStoreLikeFileSystem {
    @Override
    public String getScheme() {
      return "gatedstore";
    }

    @Override
    protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
      return gated(operation, path, () -> super.around(operation, path, body));
    }

    @Override
    protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
      return gated(operation, path, () -> super.aroundData(operation, path, body));
    }
  }

  private static <T> T gated(String operation, Path path, ObservedFileSystem.Io<T> body) throws IOException {
    Gate.pass("before " + operation, path.toString());
    T result = body.run();
    Gate.pass("after " + operation, path.toString());
    return result;
  }
}
