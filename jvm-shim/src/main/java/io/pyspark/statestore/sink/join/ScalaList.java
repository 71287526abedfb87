package io.pyspark.statestore.sink.join;

import java.util.List;
import scala.collection.JavaConverters;

/** Hands lists of Java's to methods of Spark that take a sequence, whichever Scala Spark was built with. */
public final class ScalaList {
  private ScalaList() {}

  /** The same elements, in the same order: 2.12 has no other converter, and 2.13 would rather not have this one. */
  @SuppressWarnings("deprecation")
  public static <T> scala.collection.immutable.List<T> of(List<T> list) {
    return JavaConverters.asScalaBuffer(list).toList();
  }
}
