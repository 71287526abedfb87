package io.pyspark.statestore.testing;

import io.pyspark.statestore.tables.Early;
import io.pyspark.statestore.tables.HoleySst;
import io.pyspark.statestore.tables.LocalCache;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.api.plugin.PluginContext;

/**
 * Has parts of all SSTs go from the disk all the time in executors whose state is remote, however small they are, and
 * says how many bytes have gone: in a file of each process, in the directory that {@code spark.hadoop.fs.killing.holes}
 * names.
 */
public final class HolesPlugin extends InExecutors {
  private static final int PAGE = 4096;

  @Override
  void start(PluginContext context) {
    Early.from(1, 0);
    HoleySst.pages(PAGE, PAGE);
    HoleySst.goAllTheTime(true);
    Path directory = Path.of(context.conf().get("spark.hadoop.fs.killing.holes"));
    Thread thread = new Thread(() -> say(directory), "says-what-has-gone");
    thread.setDaemon(true);
    thread.start();
  }

  private static void say(Path directory) {
    try {
      Files.createDirectories(directory);
      Path file = directory.resolve(String.valueOf(ProcessHandle.current().pid()));
      while (true) {
        Files.writeString(file, String.valueOf(LocalCache.ofProcess().givenBack()));
        Thread.sleep(200);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
