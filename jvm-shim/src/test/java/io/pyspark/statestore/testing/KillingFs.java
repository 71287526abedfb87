package io.pyspark.statestore.testing;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;

/** AbstractFileSystem of {@link KillingFileSystem}. */
public final class KillingFs extends ObservedFs {
  public KillingFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new KillingFileSystem(), conf);
  }
}
