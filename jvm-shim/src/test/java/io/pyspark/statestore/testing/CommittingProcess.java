package io.pyspark.statestore.testing;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** A process that commits state files and then exits or halts. */
public final class CommittingProcess {
  private CommittingProcess() {}

  /**
   * Commits until a commit fails or all are done, and prints how many succeeded and what failed.
   *
   * @param arguments the state directory (with a merged scheme), the number of commits, the bytes of each, and {@code
   *     exit} or {@code halt}
   */
  public static void main(String[] arguments) throws IOException {
    Path state = new Path(arguments[0]);
    byte[] bytes = new byte[Integer.parseInt(arguments[2])];
    Configuration conf = new Configuration();
    conf.set("fs." + state.toUri().getScheme() + ".impl", "io.pyspark.statestore.fs.MergedFileSystem");
    FileSystem fs = FileSystem.get(state.toUri(), conf);
    int done = 0;
    try {
      while (done < Integer.parseInt(arguments[1])) {
        Storm.write(fs, new Path(state, "0/0/" + (done + 1) + ".changelog"), bytes);
        done++;
      }
    } catch (IOException e) {
      System.out.println("failed: " + e.getMessage());
    }
    System.out.println("committed: " + done);
    System.out.flush();
    if (arguments[3].equals("halt")) {
      Runtime.getRuntime().halt(0);
    }
    System.exit(0);
  }
}
