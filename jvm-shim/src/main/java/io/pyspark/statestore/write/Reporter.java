package io.pyspark.statestore.write;

import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.index.MergedFile;
import java.io.IOException;
import java.util.List;

/** Hears what this process has made durable, before anybody else does. */
public interface Reporter {
  /** What becomes of a report, which may still be under way. */
  interface Receipt {
    /** Of a report that nobody waits for. */
    Receipt NONE =
        new Receipt() {
          @Override
          public void await() {}

          @Override
          public boolean isUnderWay() {
            return false;
          }

          @Override
          public boolean isFailed() {
            return false;
          }
        };

    /** Returns when the report has come. Throws where it was refused, or nobody answered. */
    void await() throws IOException;

    /** Whether nothing is known of it yet. */
    boolean isUnderWay();

    /** Whether it is known by now that the report was refused, or that nobody answered. */
    boolean isFailed();
  }

  /** Where nobody listens. */
  Reporter NONE =
      new Reporter() {
        @Override
        public Receipt report(MergedFile file, long trailer, long stamp, boolean sealed, List<Entry> entries) {
          return Receipt.NONE;
        }

        @Override
        public void left(MergedFile file) {}
      };

  /**
   * A group is durable, or a file is sealed. Spark may not count on any commit of the group before the report has come,
   * and nothing may be appended to the file.
   *
   * @param trailer offset of the group's trailer
   * @param stamp the group's
   * @param sealed whether nothing will be appended any more
   * @param entries of the group; none where the file was only sealed
   */
  Receipt report(MergedFile file, long trailer, long stamp, boolean sealed, List<Entry> entries) throws IOException;

  /** This process has left a file after a failure. Only the file's end shows what has reached it. */
  void left(MergedFile file);
}
