package io.pyspark.statestore.tables;

import java.io.IOException;
import java.nio.file.Files;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.hadoop.fs.Path;

/** Lets a test decide which SSTs are uploaded before their snapshot, and when. */
public final class Early {
  private static final Queue<EarlyFiles> OUT_OF_MEMORY = new ConcurrentLinkedQueue<>();

  private static final AtomicInteger FAILURES = new AtomicInteger();

  private Early() {}

  /** From now on files of so many bytes that are so old are uploaded early, whatever becomes of them. */
  public static void from(long smallest, long graceMs) {
    EarlyFiles.smallest = smallest;
    EarlyFiles.graceMs = graceMs;
    Forecast.mostWasted = 1;
  }

  /** How many uploads are still to fail. */
  public static int failuresLeft() {
    return FAILURES.get();
  }

  /** The next so many uploads run out of memory when they look for what is due. */
  public static void failing(int times) {
    FAILURES.set(times);
    OUT_OF_MEMORY.add(
        new EarlyFiles(
            new Path("/nowhere") {
              private static final long serialVersionUID = 1L;

              @Override
              public boolean equals(Object other) {
                if (StackWalker.getInstance().walk(all -> all.anyMatch(f -> f.getMethodName().equals("takeDue")))
                    && FAILURES.getAndUpdate(left -> Math.max(0, left - 1)) > 0) {
                  throw new OutOfMemoryError("of a test");
                }
                return false;
              }

              @Override
              public int hashCode() {
                return 0;
              }
            },
            "0/0",
            file -> {}));
  }

  /** Forgets all stores that are open, as if their process had been killed. */
  public static void forgetAll() {
    EarlyFiles.OPEN.clear();
  }

  /** Whether parts of a file of this name may be missing somewhere below a directory. */
  public static boolean isPartial(String root, String name) throws IOException {
    try (Stream<java.nio.file.Path> all = Files.walk(java.nio.file.Path.of(root))) {
      for (java.nio.file.Path path : (Iterable<java.nio.file.Path>) all::iterator) {
        if (path.endsWith(name) && PartialFiles.at(path) != null) {
          return true;
        }
      }
      return false;
    }
  }

  /** All stores hear that RocksDB has deleted a file, which it has for a moment still. */
  public static void deleted(String name) {
    EarlyFiles.OPEN.forEach(files -> files.deleted(java.nio.file.Path.of(name)));
  }

  /** For how long a snapshot relies on what was uploaded before it. */
  public static void reliableFor(long ms) {
    EarlyFile.reliableMs = ms;
  }

  /** So much of what is uploaded may go again before a snapshot names it. */
  public static void wasting(double most) {
    Forecast.mostWasted = most;
  }

  /**
   * When uploads begin, after what has happened.
   *
   * @param events "deleted bytes created now", "snapshot now" or "named bytes created", with semicolons between them
   * @param fromMs the first moment to ask for
   * @param toMs the last one
   * @return the first of these moments at which it is time, or -1
   */
  public static long time(String events, long graceMs, long fromMs, long toMs) {
    Forecast forecast = after(events, graceMs);
    return LongStream.rangeClosed(fromMs, toMs).filter(forecast::isTime).findFirst().orElse(-1);
  }

  /** How many snapshots are remembered after what has happened, see {@link #time}. */
  public static int remembered(String events) {
    return after(events, 0).snapshots();
  }

  private static Forecast after(String events, long graceMs) {
    Forecast forecast = new Forecast(graceMs);
    for (String each : events.isEmpty() ? new String[0] : events.split(";")) {
      String[] parts = each.split(" ");
      long first = Long.parseLong(parts[1]);
      switch (parts[0]) {
        case "deleted" -> forecast.deleted(first, Long.parseLong(parts[2]), Long.parseLong(parts[3]));
        case "snapshot" -> forecast.snapshot(first);
        default -> forecast.named(first, Long.parseLong(parts[2]));
      }
    }
    return forecast;
  }

  /** As in production. */
  public static void asEver() {
    from(64 << 10, 2000);
    wasting(Forecast.MOST_WASTED);
    EarlyFile.reliableMs = EarlyFile.RELIABLE_MS;
    for (EarlyFiles each = OUT_OF_MEMORY.poll(); each != null; each = OUT_OF_MEMORY.poll()) {
      each.close();
    }
  }

  /** The files of a store that are uploaded, which is counted by then, and that no snapshot names. */
  public static String[] unpublished(String stateDirectory, String store) {
    Set<String> found = EarlyFiles.unpublished(new Path(stateDirectory), store + "/SSTs");
    for (EarlyFiles files : EarlyFiles.OPEN) {
      synchronized (files) {
        files.known.values().stream()
            .filter(file -> file.state == EarlyFile.State.WRITING)
            .forEach(file -> found.remove(file.path()));
      }
    }
    return found.toArray(String[]::new);
  }
}
