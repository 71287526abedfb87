package io.pyspark.statestore.log;

import io.pyspark.statestore.format.Entry;
import java.io.IOException;
import java.util.List;

/** Hears what this process has made durable, before anybody else does. */
interface Reporter {
  /** Where nobody listens. */
  Reporter NONE = new Reporter() {
    @Override
    public void report(MergedFile file, long trailer, long stamp, boolean sealed, List<Entry> entries) {}

    @Override
    public void left(MergedFile file) {}
  };

  /**
   * A group is durable, or a file is sealed. No commit of the group is acknowledged before this returns.
   *
   * @param trailer offset of the group's trailer
   * @param stamp the group's
   * @param sealed whether nothing will be appended any more
   * @param entries of the group; none where the file was only sealed
   */
  void report(MergedFile file, long trailer, long stamp, boolean sealed, List<Entry> entries) throws IOException;

  /** This process has left a file after a failure. Only the file's end shows what has reached it. */
  void left(MergedFile file);
}
