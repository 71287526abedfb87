package io.pyspark.statestore;

import io.pyspark.statestore.StateStoreFilesException.Id;
import java.io.FileNotFoundException;

/** A logical file is in no merged file. Spark asks for some that need not be there, and expects an exception of this class. */
public final class StateFileNotFoundException extends FileNotFoundException implements LoadFailure {
  private static final long serialVersionUID = 1L;

  public StateFileNotFoundException(String message) {
    super("[" + Id.PSS_MISSING_STATE_FILE + "] " + message);
  }
}
