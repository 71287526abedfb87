package io.pyspark.statestore.testing;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;

/** AbstractFileSystem of {@link ConditionalFileSystem}. */
public final class ConditionalFs extends ObservedFs {
  public ConditionalFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new ConditionalFileSystem(), conf);
  }

  @Override
  boolean needsParents() {
    return false;
  }
}
