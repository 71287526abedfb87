package io.pyspark.statestore.format;

/** An index block says something impossible; the reader adds the file and the offset. */
final class MalformedIndexException extends Exception {
  private static final long serialVersionUID = 1L;

  MalformedIndexException(String what) {
    super(what);
  }
}
