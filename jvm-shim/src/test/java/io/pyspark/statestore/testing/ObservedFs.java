package io.pyspark.statestore.testing;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The AbstractFileSystem of an {@link ObservedFileSystem}, which has Spark choose its FileContext file manager.
 *
 * <p>DelegateToFileSystem asks for the parent before a create, and for source, target and parent before a rename. HDFS
 * does each of the two in one call, and so does this.
 */
public abstract class ObservedFs extends DelegateToFileSystem {
  private final ObservedFileSystem fs;

  ObservedFs(URI uri, ObservedFileSystem fs, Configuration conf) throws IOException, URISyntaxException {
    super(uri, fs, conf, fs.getScheme(), false);
    this.fs = fs;
  }

  @Override
  public FSDataOutputStream createInternal(
      Path f,
      EnumSet<CreateFlag> flag,
      FsPermission permission,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress,
      Options.ChecksumOpt checksumOpt,
      boolean createParent)
      throws IOException {
    checkPath(f);
    File file = fs.pathToFile(f);
    CreateFlag.validate(f, file.exists(), flag);
    if (flag.contains(CreateFlag.APPEND) && file.exists()) {
      return fs.append(f, bufferSize, progress);
    }
    if (!createParent && needsParents() && !file.getAbsoluteFile().getParentFile().isDirectory()) {
      throw new FileNotFoundException("parent of " + f + " does not exist or is not a directory");
    }
    boolean overwrite = flag.contains(CreateFlag.OVERWRITE);
    return fs.create(f, permission, overwrite, bufferSize, replication, blockSize, progress);
  }

  /** Whether a file can only be created in a directory that exists. */
  boolean needsParents() {
    return true;
  }

  @Override
  public void renameInternal(Path source, Path target) throws IOException {
    fs.rename(source, target, Options.Rename.NONE);
  }

  @Override
  public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
    fs.rename(source, target, overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE);
  }
}
