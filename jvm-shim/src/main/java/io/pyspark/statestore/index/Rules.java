package io.pyspark.statestore.index;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Clocks;
import java.util.function.Supplier;

/**
 * The rules of docs/guarantees.md that need a clock or an option. Production and the model in {@code tests/model} both
 * decide here.
 *
 * <p>The rules that need neither are methods of what they are about: {@link Segment#beats} (rules 3 and 5), {@link
 * Tombstone#kills} (rule 4), {@link Segment#copiedEntry} (rule 5), {@code clean.UnlinkPlan} (rule 6), {@link
 * TombstoneUse#prove} and {@link Tombstone#compareCopies} (when a tombstone may go).
 */
public final class Rules {
  private final Supplier<Options> options;
  private final Supplier<Clocks.Moment> clock;

  public Rules(Supplier<Options> options, Supplier<Clocks.Moment> clock) {
    this.options = options;
    this.clock = clock;
  }

  /** The options as they are now; a restarted query may change them. */
  public Options options() {
    return options.get();
  }

  /** The time to compare with stamps in files, and with what this process has seen. */
  public Clocks.Moment now() {
    return clock.get();
  }

  /** Rule 7: whether this process may assume that nobody appends to a file any more. */
  public boolean isClosed(MergedFile file) {
    return file.isClosed(now(), options().closedAfterMs());
  }

  /**
   * Whether a refresh has to read the end of a file that it has listed.
   *
   * @param looksDifferent whether the listing shows another length or modification time than the last one did
   * @param readsTails whether the refresh reads the ends of all files that others may append to
   */
  public boolean mustBeRead(MergedFile file, boolean looksDifferent, boolean readsTails) {
    return switch (file.writer()) {
      case THIS_PROCESS -> false;
      case NOBODY -> !file.wholeIndexRead();
      case OTHER ->
          looksDifferent || readsTails && !isClosed(file) || file.mayHaveBecomeClosed(now(), options().closedAfterMs());
    };
  }

  /**
   * Whether a relocation marker or an empty pin is expired: its maker is dead, or has stopped relying on it. Of the
   * checkpoint's own pins: whether what such a pin was made for is there by now, or never will be.
   *
   * @param sinceMs when this process first saw it as it is
   * @param asOfMs when the newest listing that shows it began
   */
  public boolean isExpired(long sinceMs, long asOfMs) {
    return asOfMs - sinceMs >= options().closedAfterMs();
  }
}
