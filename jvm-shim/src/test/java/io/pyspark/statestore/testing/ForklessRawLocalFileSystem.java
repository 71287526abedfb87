package io.pyspark.statestore.testing;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local disk, without forking a process for a call. Where its native library is missing, Hadoop runs {@code chmod}
 * and {@code readlink}, several for each small file that Spark writes: a quarter of the time of a streaming test.
 */
public class ForklessRawLocalFileSystem extends RawLocalFileSystem {
  @Override
  public void setPermission(Path f, FsPermission permission) throws IOException {
    setBits(pathToFile(f), permission);
  }

  static void setBits(File file, FsPermission permission) throws IOException {
    String symbols =
        permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL;
    Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(symbols));
  }

  @Override
  public FileStatus getFileLinkStatus(Path f) throws IOException {
    return Files.isSymbolicLink(pathToFile(f).toPath()) ? super.getFileLinkStatus(f) : getFileStatus(f);
  }
}
