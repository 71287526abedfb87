package io.pyspark.statestore.testing;

import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KmsClient;

/** A key server that keeps no secret: a wrapped key is the key. */
public final class PlainKms implements KmsClient {
  @Override
  public void initialize(Configuration conf, String instance, String url, String token) {
    // There is nothing to connect to.
  }

  @Override
  public String wrapKey(byte[] key, String masterKey) {
    return Base64.getEncoder().encodeToString(key);
  }

  @Override
  public byte[] unwrapKey(String wrapped, String masterKey) {
    return Base64.getDecoder().decode(wrapped);
  }
}
