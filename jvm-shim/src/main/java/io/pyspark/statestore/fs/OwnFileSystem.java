package io.pyspark.statestore.fs;

import java.io.Closeable;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.util.ReflectionUtils;

/**
 * A file system that only one manager has, made when it is first needed. One that Hadoop gives to all who ask in a
 * process has the settings of the first of them, and anybody may close it. The {@code FileContext} of Spark's manager
 * has one of its own, too.
 *
 * <p>Spark, 3.5 to 4.3, closes no manager of a log. So this one is not made by {@code FileSystem.newInstance}, which
 * remembers it until it is closed: it goes with the manager, as that of {@code FileContext} does.
 */
final class OwnFileSystem implements Closeable {
  private final URI uri;
  private final Configuration conf;
  private FileSystem made;

  OwnFileSystem(URI uri, Configuration conf) {
    this.uri = uri;
    this.conf = conf;
  }

  synchronized FileSystem get() throws IOException {
    if (made == null) {
      FileSystem fs = ReflectionUtils.newInstance(FileSystem.getFileSystemClass(uri.getScheme(), conf), conf);
      fs.initialize(uri, conf);
      made = fs;
    }
    return made;
  }

  @Override
  public synchronized void close() throws IOException {
    if (made != null) {
      made.close();
      made = null;
    }
  }
}
