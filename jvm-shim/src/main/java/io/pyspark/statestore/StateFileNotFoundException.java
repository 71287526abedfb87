package io.pyspark.statestore;

import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.FileNotFoundException;

/**
 * No merged file has a logical file. Spark opens some files that need not exist, and expects a {@code
 * FileNotFoundException} for those.
 */
public final class StateFileNotFoundException extends FileNotFoundException implements LoadFailure {
  private static final long serialVersionUID = 1L;

  public StateFileNotFoundException(String message) {
    super("[" + Id.PSS_MISSING_STATE_FILE + "] " + message);
  }
}
