package io.pyspark.statestore.testing;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;

/** AbstractFileSystem of {@link FaultyFileSystem}. */
public final class FaultyFs extends ObservedFs {
  public FaultyFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new FaultyFileSystem(), conf);
  }
}
