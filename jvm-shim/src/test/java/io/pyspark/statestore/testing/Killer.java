package io.pyspark.statestore.testing;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkEnv;

/**
 * Ends processes of a Spark application with SIGKILL at points that a test chooses. The first process that gets to such
 * a point carries out the order.
 *
 * <p>An order is a file {@code <name>.order} in the directory {@code spark.hadoop.fs.killing.orders}, in the format of
 * java.util.Properties:
 *
 * <ul>
 *   <li>{@code point}: where, such as {@code flush.commit} or {@code row}
 *   <li>{@code nth}: at which call that a process makes there, from 1
 *   <li>{@code fraction}: how much of the call is done by then, from 0 (nothing) to 1 (all, but its result is not
 *       returned)
 *   <li>{@code victim}: {@code self}; {@code driver}, while the executor that got there goes on; or {@code all}, driver
 *       and executors
 *   <li>{@code process}: {@code driver} or {@code executor}, where only such a process counts; else nothing
 *   <li>{@code after}: a point that the same process must have passed before, or nothing
 * </ul>
 *
 * <p>The process that renames the file to {@code .taken} carries the order out, so that happens once. {@code
 * <name>.done} says what was done.
 */
public final class Killer {
  private static final Map<String, AtomicInteger> CALLS = new ConcurrentHashMap<>();
  private static final Set<String> PASSED = ConcurrentHashMap.newKeySet();
  private static final ThreadLocal<String> LAST_POINT = ThreadLocal.withInitial(() -> "");

  private Killer() {}

  /** An order that this process has taken. */
  record Order(Path file, String where, double fraction, String victim) {
    /** Kills the victims. It returns only if this process is not one of them. */
    void carryOut() {
      ProcessHandle self = ProcessHandle.current();
      List<ProcessHandle> victims = new ArrayList<>();
      if (isExecutor()) {
        // In a local cluster the driver has started the executor.
        ProcessHandle driver = self.parent().orElseThrow();
        List<ProcessHandle> others = driver.children().filter(p -> p.pid() != self.pid()).toList();
        if (!victim.equals("self")) {
          victims.add(driver);
        }
        if (victim.equals("all")) {
          victims.addAll(others);
        }
      }
      boolean selfToo = !isExecutor() || !victim.equals("driver");
      List<Long> pids = new ArrayList<>(victims.stream().map(ProcessHandle::pid).toList());
      if (selfToo) {
        pids.add(self.pid());
      }
      String process = isExecutor() ? "executor" : "driver";
      write(
          file.resolveSibling(baseName() + ".done"),
          "pids=" + pids + "\nby=" + self.pid() + "\nprocess=" + process + "\nat=" + where + "\n");
      victims.forEach(ProcessHandle::destroyForcibly);
      if (selfToo) {
        killSelf(self.pid());
      }
    }

    private String baseName() {
      return file.getFileName().toString().replace(".taken", "");
    }
  }

  /**
   * A point in a query's rows: {@code SELECT reflect('io.pyspark.statestore.testing.Killer', 'row', cast(k AS
   * string))}.
   */
  public static String row(String row) {
    Order order = due("row", row);
    if (order != null) {
      order.carryOut();
    }
    return row;
  }

  /** Takes the order for this call at a point, if there is one; else null. */
  static Order due(String point, String detail) {
    LAST_POINT.set(point);
    File[] files = directory().toFile().listFiles((d, name) -> name.endsWith(".order"));
    for (File file : files == null ? new File[0] : files) {
      Properties order = read(file.toPath());
      if (order != null
          && order.getProperty("point").equals(point)
          && isHere(order.getProperty("process", ""))
          && follows(order.getProperty("after", ""))) {
        int calls = CALLS.computeIfAbsent(file.getName(), n -> new AtomicInteger()).incrementAndGet();
        if (calls >= Integer.parseInt(order.getProperty("nth", "1"))) {
          Path taken = take(file.toPath());
          if (taken != null) {
            double fraction = Double.parseDouble(order.getProperty("fraction", "0"));
            return new Order(taken, point + " " + detail, fraction, order.getProperty("victim", "self"));
          }
        }
      }
    }
    return null;
  }

  /** Notes that the call for which this thread last asked {@link #due} has succeeded. */
  static void passed(String detail) {
    PASSED.add(LAST_POINT.get());
  }

  private static boolean isHere(String process) {
    return process.isEmpty() || process.equals(isExecutor() ? "executor" : "driver");
  }

  private static boolean follows(String after) {
    return after.isEmpty() || PASSED.contains(after);
  }

  private static Path directory() {
    return Path.of(SparkEnv.get().conf().get("spark.hadoop.fs.killing.orders"));
  }

  private static boolean isExecutor() {
    return !SparkEnv.get().executorId().equals("driver");
  }

  private static Properties read(Path file) {
    Properties read = new Properties();
    try (InputStream in = Files.newInputStream(file)) {
      read.load(in);
      return read;
    } catch (NoSuchFileException e) {
      return null;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Path take(Path file) {
    Path taken = file.resolveSibling(file.getFileName().toString().replace(".order", ".taken"));
    try {
      return Files.move(file, taken, StandardCopyOption.ATOMIC_MOVE);
    } catch (NoSuchFileException e) {
      return null;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void write(Path file, String text) {
    try {
      Path hidden = file.resolveSibling(file.getFileName() + ".tmp");
      Files.writeString(hidden, text);
      Files.move(hidden, file, StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Has a shell kill this process, since a JVM does not kill itself; the calling thread never goes on. */
  private static void killSelf(long pid) {
    try {
      new ProcessBuilder("sh", "-c", "kill -9 " + pid).start();
      Thread.sleep(60_000);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      Runtime.getRuntime().halt(137);
    }
    Runtime.getRuntime().halt(137);
  }
}
