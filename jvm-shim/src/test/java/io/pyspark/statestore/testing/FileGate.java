package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import org.apache.spark.TaskContext;

/**
 * Stops a task of any process at a chosen row, through files; {@link Gate} does the same in one process. A query calls
 * it with {@code SELECT reflect('io.pyspark.statestore.testing.FileGate', 'pass', cast(k AS string), '/a/directory')}.
 * The test makes the file {@code hold-<k>} in that directory. The first task that comes by makes {@code held-<k>}, with
 * its process id, and waits until {@code hold-<k>} is gone. Other tasks pass.
 *
 * <p>{@code hold-<k>-<n>} stops only attempt n of the task. A task whose hold file has the content {@code deaf}
 * swallows interrupts, as some libraries do.
 */
public final class FileGate {
  private static final long PATIENCE_MS = 120_000;

  private FileGate() {}

  /** Called for each row; returns the value. */
  public static String pass(String row, String directory) {
    try {
      stop(row, directory);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task that is held at row " + row + " was killed", e);
    }
    return row;
  }

  /** Stops the calling task if a hold file says so; {@code row} is the name of the place. */
  static void stop(String row, String directory) throws InterruptedException {
    stopAt(row, directory);
    TaskContext task = TaskContext.get();
    if (task != null) {
      stopAt(row + "-" + task.attemptNumber(), directory);
    }
  }

  private static void stopAt(String row, String directory) throws InterruptedException {
    Path hold = Path.of(directory, "hold-" + row);
    if (!Files.exists(hold)) {
      return;
    }
    boolean deaf = isDeaf(hold);
    if (!taken(Path.of(directory, "held-" + row))) {
      return;
    }
    long end = System.currentTimeMillis() + PATIENCE_MS;
    while (Files.exists(hold)) {
      if (System.currentTimeMillis() > end) {
        throw new IllegalStateException("nobody let the task go on that is held at row " + row);
      }
      try {
        Thread.sleep(20);
      } catch (InterruptedException e) {
        if (!deaf) {
          throw e;
        }
      }
    }
  }

  private static boolean isDeaf(Path hold) {
    try {
      return Files.readString(hold).equals("deaf");
    } catch (NoSuchFileException e) {
      return false;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean taken(Path held) {
    Path unfinished =
        held.resolveSibling(
            "." + held.getFileName() + ProcessHandle.current().pid() + "-" + Thread.currentThread().getId());
    try {
      Files.writeString(unfinished, Long.toString(ProcessHandle.current().pid()));
      try {
        // This fails if another task was first, and nobody sees the file without its content.
        Files.createLink(held, unfinished);
        return true;
      } catch (FileAlreadyExistsException e) {
        return false;
      } finally {
        Files.delete(unfinished);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
