package io.pyspark.statestore.log;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Deletes many files with one request, where the file system can. S3A does since Hadoop 3.4.1, 250 objects at once.
 * There, the deletion of one object takes four requests: S3A asks what it is, and whether its directory has to be marked
 * now.
 *
 * <p>Hadoop has {@code WrappedIO} for callers that also run with older versions of it, which do not have the class.
 */
final class BulkDeletion {
  private static final MethodHandle PAGE_SIZE =
      find("bulkDelete_pageSize", MethodType.methodType(int.class, FileSystem.class, Path.class));
  private static final MethodHandle DELETE = find(
      "bulkDelete_delete", MethodType.methodType(List.class, FileSystem.class, Path.class, Collection.class));

  private final FileSystem fs;
  private final Path directory;
  private final int pageSize;

  private BulkDeletion(FileSystem fs, Path directory, int pageSize) {
    this.fs = fs;
    this.directory = directory;
    this.pageSize = pageSize;
  }

  /** Deletion of files in a directory. */
  static BulkDeletion of(FileSystem fs, Path directory) {
    int pageSize = 1;
    if (PAGE_SIZE != null) {
      try {
        pageSize = Math.max(1, (int) call(() -> PAGE_SIZE.invoke(fs, directory)));
      } catch (IOException | RuntimeException e) {
        // Whatever is wrong, deleting one by one says it of each file.
      }
    }
    return new BulkDeletion(fs, directory, pageSize);
  }

  /** How many files one request deletes; 1 where that is not known to be more. */
  int pageSize() {
    return pageSize;
  }

  /**
   * Deletes files of the directory, at most a page of them. It is no failure if one is gone already.
   *
   * @return the files that are still there, and why
   */
  Map<Path, Exception> delete(List<Path> page) {
    Map<Path, Exception> failed = new HashMap<>();
    try {
      for (Object each : (List<?>) call(() -> DELETE.invoke(fs, directory, page))) {
        Map.Entry<?, ?> pair = (Map.Entry<?, ?>) each;
        failed.put((Path) pair.getKey(), new IOException(String.valueOf(pair.getValue())));
      }
    } catch (IOException | RuntimeException e) {
      page.forEach(file -> failed.put(file, e));
    }
    return failed;
  }

  private static MethodHandle find(String name, MethodType type) {
    try {
      Class<?> wrapped = Class.forName("org.apache.hadoop.io.wrappedio.WrappedIO");
      return MethodHandles.publicLookup().findStatic(wrapped, name, type);
    } catch (ReflectiveOperationException | LinkageError e) {
      return null;
    }
  }

  private interface Call {
    Object make() throws Throwable;
  }

  private static Object call(Call call) throws IOException {
    try {
      return call.make();
    } catch (UncheckedIOException e) {
      throw e.getCause();
    } catch (IOException | RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IOException(e);
    }
  }
}
