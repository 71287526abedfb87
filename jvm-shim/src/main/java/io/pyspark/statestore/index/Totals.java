package io.pyspark.statestore.index;

/**
 * Counts over a checkpoint.
 *
 * @param physicalBytes of all files, dead ones and indexes included
 * @param liveSegments how many logical files there are
 */
public record Totals(int files, long physicalBytes, int liveSegments, long liveBytes) {
  public static final Totals NOTHING = new Totals(0, 0, 0, 0);

  /** The sum of two checkpoints' totals. */
  public Totals plus(Totals other) {
    return new Totals(
        files + other.files,
        physicalBytes + other.physicalBytes,
        liveSegments + other.liveSegments,
        liveBytes + other.liveBytes);
  }

  /** Physical bytes per live byte; NaN where nothing lives. */
  public double spaceAmplification() {
    return liveBytes == 0 ? Double.NaN : (double) physicalBytes / liveBytes;
  }
}
