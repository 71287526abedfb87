package io.pyspark.statestore.testing;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.AccessControlException;

/**
 * {@link ObjectStoreLikeFileSystem} under {@code bulk:}, which deletes up to {@code fs.bulk.page.size} objects with one
 * request, as S3A does since Hadoop 3.4.1. An object whose name ends with {@code fs.bulk.refused} is not deleted.
 */
public final class BulkDeletingFileSystem extends ObjectStoreLikeFileSystem {
  @Override
  public String getScheme() {
    return "bulk";
  }

  @Override
  public BulkDelete createBulkDelete(Path base) {
    return new BulkDelete() {
      @Override
      public int pageSize() {
        return getConf().getInt("fs.bulk.page.size", 4);
      }

      @Override
      public Path basePath() {
        return base;
      }

      @Override
      public List<Map.Entry<Path, String>> bulkDelete(Collection<Path> paths) throws IOException {
        if (paths.size() > pageSize()) {
          throw new IllegalArgumentException(paths.size() + " paths are more than a page");
        }
        return observed("bulkDelete", base, () -> deleteEach(paths));
      }

      @Override
      public void close() {
        // There is nothing to close.
      }
    };
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    if (isRefused(path)) {
      throw new AccessControlException("AccessDenied");
    }
    return super.delete(path, recursive);
  }

  private List<Map.Entry<Path, String>> deleteEach(Collection<Path> paths) throws IOException {
    List<Map.Entry<Path, String>> left = new ArrayList<>();
    for (Path path : paths) {
      if (isRefused(path)) {
        left.add(Map.entry(path, "AccessDenied"));
      } else {
        delete(path, false);
      }
    }
    return left;
  }

  private boolean isRefused(Path path) {
    String refused = getConf().get("fs.bulk.refused", "");
    return !refused.isEmpty() && path.getName().endsWith(refused);
  }
}
