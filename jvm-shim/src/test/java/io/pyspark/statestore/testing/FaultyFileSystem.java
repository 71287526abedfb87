package io.pyspark.statestore.testing;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * The local disk under {@code faulty:}, whose calls fail as {@link Faults} says. It counts calls, except those that
 * fail before they do anything.
 */
public final class FaultyFileSystem extends ObservedFileSystem {
  @Override
  public String getScheme() {
    return "faulty";
  }

  // ---- rules, for py4j
  // -----------------------------------------------------------------------------------------------

  /** {@link Faults#addRule(String, String, int, String)}. */
  public static void addRule(String operation, String pathContains, int nth, String kind) {
    Faults.addRule(operation, pathContains, nth, kind);
  }

  /** {@link Faults#addRule(String, String, int, int, String)}. */
  public static void addRule(String operation, String pathContains, int nth, int times, String kind) {
    Faults.addRule(operation, pathContains, nth, times, kind);
  }

  /** {@link Faults#fired()}. */
  public static int fired() {
    return Faults.fired();
  }

  /** {@link Faults#clear()}. */
  public static void clear() {
    Faults.clear();
  }

  // ---- faults
  // ---------------------------------------------------------------------------------------------------------

  @Override
  protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
    return faulty(operation, path, () -> super.around(operation, path, body));
  }

  @Override
  protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
    return faultyData(operation, path, () -> super.aroundData(operation, path, body));
  }

  @Override
  protected ObservedOutputStream observe(Path path, FSDataOutputStream stream) {
    return new FaultyOutputStream(this, path, stream, pathToFile(path));
  }

  static <T> T faulty(String operation, Path path, Io<T> body) throws IOException {
    Faults.Rule rule = Faults.hit(operation, path);
    if (rule == null) {
      return body.run();
    }
    if (rule.is("short")) {
      return firstHalf(body.run());
    }
    if (rule.worksFirst()) {
      T result = body.run();
      if (result instanceof Closeable stream) {
        stream.close();
      }
    }
    throw rule.failure(path);
  }

  @SuppressWarnings("unchecked") // half of an array is an array of the same kind
  private static <T> T firstHalf(T listing) {
    if (!(listing instanceof FileStatus[] all)) {
      throw new IllegalArgumentException("only a listing can be short");
    }
    Arrays.sort(all);
    return (T) Arrays.copyOf(all, all.length / 2);
  }

  /** Makes reads of a stream fail; {@link FaultyOutputStream} does the same for writes. */
  static long faultyData(String operation, Path path, Io<Long> body) throws IOException {
    Faults.Rule rule = operation.equals("read") ? Faults.hit(operation, path) : null;
    if (rule == null) {
      return body.run();
    }
    if (rule.worksFirst() || rule.is("torn")) {
      body.run();
    }
    if (rule.is("torn")) {
      throw new EOFException("injected fault (torn): end of " + path);
    }
    throw rule.failure(path);
  }
}
