package io.pyspark.statestore;

import io.pyspark.statestore.StateStoreFilesException.Id;

/** The jar's version, and the check that it fits the Python package and the Spark that it runs with. */
public final class ShimInfo {
  /** The minor versions of Spark that this jar was compiled and tested for. */
  private static final String SUPPORTED_SPARK = "4.3";

  private ShimInfo() {}

  /** The jar's version, from its manifest; {@code unknown} for classes outside of a jar. */
  public static String version() {
    String version = ShimInfo.class.getPackage().getImplementationVersion();
    return version == null ? "unknown" : version;
  }

  /** Refuses to work with another version of the Python package, or with a Spark that this jar was not made for. */
  public static void checkCompatible(Options options, String sparkVersion) throws StateStoreFilesException {
    if (!sparkVersion.startsWith(SUPPORTED_SPARK + ".")) {
      throw new StateStoreFilesException(
          Id.PSS_UNSUPPORTED_SPARK, "This session runs Spark " + sparkVersion + "; pyspark_statestore " + version()
              + " supports Spark " + SUPPORTED_SPARK + ". Install the release for your Spark.");
    }
    if (!options.shimVersion().isEmpty() && !options.shimVersion().equals(version())) {
      throw new StateStoreFilesException(
          Id.PSS_VERSION_MISMATCH, "The Python package is pyspark_statestore " + options.shimVersion()
              + " but the jar on the class path is " + version()
              + ". Remove the other jar from spark.jars and the class path, or install the matching package.");
    }
  }
}
