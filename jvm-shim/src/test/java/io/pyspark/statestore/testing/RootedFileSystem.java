package io.pyspark.statestore.testing;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** A file system whose root is a directory of the local disk: {@code fs.rooted.directory}. */
public final class RootedFileSystem extends ForklessRawLocalFileSystem {
  @Override
  public String getScheme() {
    return "rooted";
  }

  @Override
  public URI getUri() {
    return URI.create("rooted:///");
  }

  @Override
  public File pathToFile(Path path) {
    return new File(getConf().get("fs.rooted.directory") + makeQualified(path).toUri().getPath());
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    return as(makeQualified(path), super.getFileStatus(path));
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    FileStatus[] found = super.listStatus(path);
    for (int i = 0; i < found.length; i++) {
      boolean isItself = pathToFile(path).isFile();
      Path qualified = makeQualified(path);
      found[i] = as(isItself ? qualified : new Path(qualified, found[i].getPath().getName()), found[i]);
    }
    return found;
  }

  private static FileStatus as(Path path, FileStatus of) {
    return new FileStatus(of.getLen(), of.isDirectory(), 1, of.getBlockSize(), of.getModificationTime(), path);
  }
}
