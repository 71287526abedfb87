package io.pyspark.statestore;

import io.pyspark.statestore.StateStoreFilesException.Id;
import java.security.CodeSource;

/**
 * The jar's version, and the check that it fits the Spark that it runs with. The JVM has to be able to load this class
 * in any Spark, so it names no class of ours that needs one.
 */
public final class ShimInfo {
  private ShimInfo() {}

  /** The jar's version, from its manifest; {@code unknown} for classes outside of a jar. */
  public static String version() {
    String version = ShimInfo.class.getPackage().getImplementationVersion();
    return version == null ? "unknown" : version;
  }

  /** The minor version of Spark that this jar was compiled for, such as {@code 4.3}. */
  public static String sparkMinor() {
    return BuiltFor.spark();
  }

  /**
   * Whether methods of Spark's that take or return a {@code Seq} are those that this jar was compiled for: Spark 3.5
   * comes with Scala 2.12 and 2.13, in which that name means two classes, and its jar is compiled for 2.12.
   *
   * @param scala the version of Scala that runs
   */
  public static boolean knowsSequencesOf(String scala) {
    return !sparkMinor().equals("3.5") || scala.startsWith("2.12.");
  }

  /**
   * Refuses to work in a Spark that this jar was not compiled for. Whatever users name by its class calls this before
   * all else.
   *
   * @throws IllegalStateException PSS_WRONG_SPARK
   */
  public static void checkSpark() {
    checkSpark(org.apache.spark.package$.MODULE$.SPARK_VERSION());
  }

  /** As {@link #checkSpark()}, for a version that is given. */
  public static void checkSpark(String found) {
    if (!found.startsWith(sparkMinor() + ".")) {
      CodeSource source = ShimInfo.class.getProtectionDomain().getCodeSource();
      throw new IllegalStateException(
          "["
              + Id.PSS_WRONG_SPARK
              + "] This is Spark "
              + found
              + ", and the jar of pyspark_statestore "
              + version()
              + " is for Spark "
              + sparkMinor()
              + (source == null ? "" : " (" + source.getLocation() + ")")
              + ". Each minor version of Spark has a jar of its own. In the Python of this Spark, pyspark-statestore"
              + " jar-path names the right one: give Spark that one, and no other.");
    }
  }
}
