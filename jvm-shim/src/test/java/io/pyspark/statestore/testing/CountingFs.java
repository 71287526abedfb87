package io.pyspark.statestore.testing;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;

/** AbstractFileSystem of {@link CountingFileSystem}. */
public final class CountingFs extends ObservedFs {
  public CountingFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new CountingFileSystem(), conf);
  }
}
