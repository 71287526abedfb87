package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Threads;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives parts of files back to the disk, which keep their length: holes. Java has no call for that, so a child process
 * does it, a Python without any package ({@code hole_puncher.py}), which ends with this process.
 *
 * <p>It is told which file it is, not only its name: another file may have got it meanwhile.
 */
final class HolePuncher {
  private static final Logger LOG = LoggerFactory.getLogger(HolePuncher.class);

  private static final String PYTHON = "python3";
  private static final String SCRIPT = "hole_puncher.py";
  private static final int MOST_WAIT_SECONDS = 10;

  /** After a failure nothing is tried for so long, and twice as long after each further one. */
  private static final long FIRST_REST_MS = 500;

  private static final int MOST_DOUBLINGS = 10;

  /** What a file system answers that cannot do it: EOPNOTSUPP, ENOSYS. */
  private static final Set<Integer> NEVER = Set.of(95, 38);

  private static final ScheduledExecutorService WATCH = watch();

  private static final int DONE = 0;
  private static final int GONE = 1;

  /** A part of a file. */
  record Range(long offset, long length) {}

  /** What is tried, one after the other. */
  private final List<String> pythons;

  private Process process;
  private DataOutputStream orders;
  private DataInputStream answers;
  private int failures;
  private volatile String whyNot;
  private volatile boolean isNever;
  private volatile long restUntilNanos = System.nanoTime();

  HolePuncher() {
    this(Stream.of(System.getenv().getOrDefault("PYSPARK_PYTHON", PYTHON), PYTHON).distinct().toList());
  }

  HolePuncher(List<String> pythons) {
    this.pythons = pythons;
  }

  private static ScheduledExecutorService watch() {
    ScheduledThreadPoolExecutor made =
        new ScheduledThreadPoolExecutor(1, Threads.daemons("pyspark-statestore-hole-watch"));
    made.setRemoveOnCancelPolicy(true);
    return made;
  }

  /** Whether it may be asked now. */
  boolean isWorking() {
    return !isNever && System.nanoTime() - restUntilNanos >= 0;
  }

  String whyNot() {
    return whyNot;
  }

  /**
   * Makes holes.
   *
   * @param identity what tells the file from all others, {@link PartialFiles#keyOf}
   * @return false where that could not be done, at least not for all
   */
  synchronized boolean punch(Path file, Object identity, List<Range> ranges) {
    if (!isWorking()) {
      return false;
    }
    try {
      start();
      byte[] name = file.toString().getBytes(StandardCharsets.UTF_8);
      byte[] id = identity.toString().getBytes(StandardCharsets.UTF_8);
      orders.writeInt(name.length);
      orders.write(name);
      orders.writeInt(id.length);
      orders.write(id);
      orders.writeInt(ranges.size());
      for (Range range : ranges) {
        orders.writeLong(range.offset);
        orders.writeLong(range.length);
      }
      orders.flush();
      int answer = answer();
      if (answer == DONE || answer == GONE) { // a file that is gone takes no room
        failures = 0;
        return true;
      }
      isNever = NEVER.contains(-answer);
      rest("the disk of " + file + " answers with error " + -answer);
    } catch (IOException e) {
      end();
      rest(e.toString());
      LOG.info("A part of {} was not given back", file, e);
    }
    return false;
  }

  private void rest(String why) {
    whyNot = why;
    long ms = FIRST_REST_MS << Math.min(failures++, MOST_DOUBLINGS);
    restUntilNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
  }

  /** Waits for the answer. A disk that does not answer must not hold up all who wait for room. */
  private int answer() throws IOException {
    Process asked = process;
    Future<?> end = WATCH.schedule(asked::destroyForcibly, MOST_WAIT_SECONDS, TimeUnit.SECONDS);
    try {
      return answers.readInt();
    } finally {
      end.cancel(false);
    }
  }

  private void start() throws IOException {
    if (process != null && process.isAlive()) {
      return;
    }
    end();
    process = child();
    orders = new DataOutputStream(new BufferedOutputStream(process.getOutputStream()));
    answers = new DataInputStream(new BufferedInputStream(process.getInputStream()));
  }

  private Process child() throws IOException {
    IOException failed = null;
    for (String python : pythons) {
      try {
        return new ProcessBuilder(python, "-I", "-S", "-c", script())
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
      } catch (IOException e) {
        failed = e;
      }
    }
    throw failed;
  }

  private static String script() throws IOException {
    try (InputStream in = HolePuncher.class.getResourceAsStream(SCRIPT)) {
      if (in == null) {
        throw new IOException(SCRIPT + " is not in the jar");
      }
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  private void end() {
    if (process != null) {
      process.destroyForcibly();
      process = null;
    }
  }
}
