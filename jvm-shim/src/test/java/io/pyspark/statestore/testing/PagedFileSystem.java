package io.pyspark.statestore.testing;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Queue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * The local disk under {@code paged:}, which lists as HDFS and S3 do: page by page, in the order of the names, each
 * page with what is there when it is read. After each page but the last, a listing passes the {@link Gate} {@link
 * #BETWEEN}, with the directory, a space, and the last name of the page.
 */
public final class PagedFileSystem extends ObservedFileSystem {
  /** The place at which {@link Gate#hold} stops a listing. */
  public static final String BETWEEN = "between pages";

  private static final int OF_HDFS = 1000;
  private static volatile int pageSize = OF_HDFS;
  private static final AtomicInteger LISTINGS = new AtomicInteger();

  @Override
  public String getScheme() {
    return "paged";
  }

  /** Sets the number of names in a page, in this process. */
  public static void pageSize(int names) {
    pageSize = names;
  }

  /** How many directories were listed in this process, {@code _merged} ones only. */
  public static int listings() {
    return LISTINGS.get();
  }

  /** Sets the number of names in a page to that of HDFS. */
  public static void pageSizeOfHdfs() {
    pageSize(OF_HDFS);
  }

  @Override
  public FileStatus[] listStatus(Path directory) throws IOException {
    List<FileStatus> all = new ArrayList<>();
    RemoteIterator<FileStatus> pages = listStatusIterator(directory);
    while (pages.hasNext()) {
      all.add(pages.next());
    }
    return all.toArray(FileStatus[]::new);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path directory) throws IOException {
    return new Pages(directory);
  }

  private List<FileStatus> namesAfter(Path directory, String last) throws IOException {
    return Stream.of(super.listStatus(directory))
        .filter(status -> name(status).compareTo(last) > 0)
        .sorted(Comparator.comparing(PagedFileSystem::name))
        .toList();
  }

  private static String name(FileStatus status) {
    return status.getPath().getName();
  }

  private final class Pages implements RemoteIterator<FileStatus> {
    private final Path directory;
    private final Queue<FileStatus> page = new ArrayDeque<>();
    private boolean isLast;
    private String last = "";

    Pages(Path directory) throws IOException {
      this.directory = directory;
      LISTINGS.addAndGet(directory.getName().equals("_merged") ? 1 : 0);
      turn();
    }

    private void turn() throws IOException {
      List<FileStatus> rest = namesAfter(directory, last);
      isLast = rest.size() <= pageSize;
      page.addAll(rest.subList(0, Math.min(pageSize, rest.size())));
    }

    @Override
    public boolean hasNext() throws IOException {
      if (page.isEmpty() && !isLast) {
        Gate.pass(BETWEEN, directory + " " + last);
        turn();
      }
      return !page.isEmpty();
    }

    @Override
    public FileStatus next() throws IOException {
      if (!hasNext()) {
        throw new NoSuchElementException(directory.toString());
      }
      FileStatus next = page.remove();
      last = name(next);
      return next;
    }
  }
}
