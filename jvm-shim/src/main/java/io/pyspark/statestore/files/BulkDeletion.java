package io.pyspark.statestore.files;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Deletes many files with one request, where the file system can. S3A can, 250 objects at once. There, the deletion of
 * one object takes four requests: S3A asks what it is, and whether its directory has to be marked now.
 *
 * <p>From Hadoop 3.4.1 on, {@code WrappedIO} is for callers that also run with older versions, which do not have the
 * class. S3A of Hadoop 3.3, which comes with Spark 3.5, has the request as a public method, {@code removeKeys}, which
 * it uses for directories. What is not as expected there is deleted one by one.
 */
public final class BulkDeletion {
  private static final MethodHandle PAGE_SIZE =
      find("bulkDelete_pageSize", MethodType.methodType(int.class, FileSystem.class, Path.class));
  private static final MethodHandle DELETE =
      find("bulkDelete_delete", MethodType.methodType(List.class, FileSystem.class, Path.class, Collection.class));
  private static final String S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem";
  private static final String KEY = "com.amazonaws.services.s3.model.DeleteObjectsRequest$KeyVersion";

  /** The page of S3A from Hadoop 3.4 on. S3 takes a thousand. */
  private static final int S3A_PAGE = 250;

  /** Deletes a page, and says what is still there and why. */
  private interface Request {
    Map<Path, Exception> delete(List<Path> page) throws IOException;
  }

  private final Request request;
  private final int pageSize;

  private BulkDeletion(Request request, int pageSize) {
    this.request = request;
    this.pageSize = pageSize;
  }

  /** Deletion of files in a directory. */
  public static BulkDeletion of(FileSystem fs, Path directory) {
    int pageSize = 1;
    if (PAGE_SIZE != null) {
      try {
        pageSize = (int) call(() -> PAGE_SIZE.invoke(fs, directory));
      } catch (IOException | RuntimeException e) {
        // Whatever is wrong, deleting one by one says it of each file.
      }
    }
    if (pageSize > 1) {
      return new BulkDeletion(page -> pairs((List<?>) call(() -> DELETE.invoke(fs, directory, page))), pageSize);
    }
    Request ofKeys = ofKeys(fs);
    return ofKeys == null ? new BulkDeletion(null, 1) : new BulkDeletion(ofKeys, S3A_PAGE);
  }

  /** How many files one request deletes; 1 where that is not known to be more. */
  public int pageSize() {
    return pageSize;
  }

  /**
   * Deletes files of the directory, at most a page of them. It is no failure if one is gone already.
   *
   * @return the files that are still there, or may be, and why
   */
  public Map<Path, Exception> delete(List<Path> page) {
    try {
      return request.delete(page);
    } catch (IOException | RuntimeException e) {
      Map<Path, Exception> failed = new HashMap<>();
      page.forEach(file -> failed.put(file, e));
      return failed;
    }
  }

  private static Map<Path, Exception> pairs(List<?> answer) {
    Map<Path, Exception> failed = new HashMap<>();
    for (Object each : answer) {
      Map.Entry<?, ?> pair = (Map.Entry<?, ?>) each;
      failed.put((Path) pair.getKey(), new IOException(String.valueOf(pair.getValue())));
    }
    return failed;
  }

  /** Null where the file system is not S3A as Hadoop 3.3 has it. */
  private static Request ofKeys(FileSystem fs) {
    if (!fs.getClass().getName().equals(S3A) || !fs.getConf().getBoolean("fs.s3a.multiobjectdelete.enable", true)) {
      return null;
    }
    try {
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      MethodHandle keyOf = lookup.unreflect(fs.getClass().getMethod("pathToKey", Path.class));
      Class<?> key = Class.forName(KEY, false, fs.getClass().getClassLoader());
      MethodHandle made = lookup.findConstructor(key, MethodType.methodType(void.class, String.class));
      MethodHandle remove = removeKeys(lookup, fs.getClass());
      return remove == null
          ? null
          : page ->
              call(
                  () -> {
                    List<Object> keys = new ArrayList<>();
                    for (Path file : page) {
                      keys.add(made.invoke((String) keyOf.invoke(fs, file)));
                    }
                    remove.invoke(fs, keys, false);
                    return Map.of();
                  });
    } catch (ReflectiveOperationException | LinkageError e) {
      return null;
    }
  }

  /**
   * The method for keys and whether directories are deleted. Where there was S3Guard it takes S3Guard's state, or null.
   */
  private static MethodHandle removeKeys(MethodHandles.Lookup lookup, Class<?> s3a) throws IllegalAccessException {
    for (Method method : s3a.getMethods()) {
      Class<?>[] types = method.getParameterTypes();
      boolean isIt =
          method.getName().equals("removeKeys")
              && types.length >= 2
              && types.length <= 3
              && types[0] == List.class
              && types[1] == boolean.class;
      if (isIt && types.length == 2) {
        return lookup.unreflect(method);
      }
      if (isIt && !types[2].isPrimitive()) {
        return MethodHandles.insertArguments(lookup.unreflect(method), 3, (Object) null);
      }
    }
    return null;
  }

  private static MethodHandle find(String name, MethodType type) {
    try {
      Class<?> wrapped = Class.forName("org.apache.hadoop.io.wrappedio.WrappedIO");
      return MethodHandles.publicLookup().findStatic(wrapped, name, type);
    } catch (ReflectiveOperationException | LinkageError e) {
      return null;
    }
  }

  private interface Call<T> {
    T make() throws Throwable;
  }

  private static <T> T call(Call<T> call) throws IOException {
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
