package io.pyspark.statestore.testing;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** A process that writes and reads state files on command, until it is killed or its standard input ends. */
public final class StateFileShell {
  private StateFileShell() {}

  /**
   * Answers each line of standard input with one line: {@code write <path> <text>} or {@code read <path>}. An answer
   * starts with {@code ok} or {@code failed}.
   *
   * @param arguments the state directory (with a merged scheme), then Hadoop settings, {@code key=value}
   */
  public static void main(String[] arguments) throws IOException {
    Path state = new Path(arguments[0]);
    Configuration conf = new Configuration();
    conf.set("fs." + state.toUri().getScheme() + ".impl", "io.pyspark.statestore.fs.MergedFileSystem");
    for (int i = 1; i < arguments.length; i++) {
      String[] setting = arguments[i].split("=", 2);
      conf.set(setting[0], setting[1]);
    }
    FileSystem fs = FileSystem.get(state.toUri(), conf);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("ok ready");
    for (String line; (line = lines.readLine()) != null; ) {
      System.out.println(answer(fs, state, line.split(" ", 3)));
    }
    System.exit(0);
  }

  private static String answer(FileSystem fs, Path state, String[] words) {
    try {
      switch (words[0]) {
        case "write" -> {
          Storm.write(fs, new Path(state, words[1]), words[2].getBytes(StandardCharsets.UTF_8));
          return "ok";
        }
        case "read" -> {
          // Spark asks first, too, and that refreshes the index.
          if (!fs.exists(new Path(state, words[1]))) {
            return "failed: " + words[1] + " does not exist";
          }
          try (FSDataInputStream in = fs.open(new Path(state, words[1]))) {
            return "ok " + new String(in.readAllBytes(), StandardCharsets.UTF_8);
          }
        }
        default -> throw new IllegalArgumentException(words[0]);
      }
    } catch (IOException | RuntimeException e) {
      return "failed: " + String.valueOf(e.getMessage()).replace('\n', ' ');
    }
  }
}
