package io.pyspark.statestore.testing;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;

/** AbstractFileSystem of {@link ObjectStoreLikeFileSystem}. */
public final class ObjectStoreLikeFs extends ObservedFs {
  public ObjectStoreLikeFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new ObjectStoreLikeFileSystem(), conf);
  }

  @Override
  boolean needsParents() {
    return false;
  }
}
