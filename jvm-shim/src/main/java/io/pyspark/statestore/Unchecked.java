package io.pyspark.statestore;

/** Lets checked exceptions through methods that declare none: Scala's do not, and Spark expects them all the same. */
public final class Unchecked {
  private Unchecked() {}

  /** Throws the exception as it is. It never returns; callers throw what it returns, so that the compiler knows. */
  public static RuntimeException raise(Exception e) {
    throw Unchecked.<RuntimeException>as(e);
  }

  @SuppressWarnings("unchecked")
  private static <E extends Exception> E as(Exception e) throws E {
    throw (E) e;
  }
}
