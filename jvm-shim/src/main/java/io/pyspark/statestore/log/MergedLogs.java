package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.util.ShutdownHookManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The logs of this process: one per checkpoint, opened when first needed, sealed when the process stops cleanly. */
public final class MergedLogs {
  private static final Logger LOG = LoggerFactory.getLogger(MergedLogs.class);
  private static final long TICK_MS = 100;

  private static final Map<String, MergedLog> LOGS = new ConcurrentHashMap<>();
  private static final ExecutorService THREADS = Executors.newCachedThreadPool(daemons("merged-log-io"));
  private static final ScheduledExecutorService HOUSEKEEPER =
      Executors.newSingleThreadScheduledExecutor(daemons("merged-log-housekeeper"));

  static {
    HOUSEKEEPER.scheduleWithFixedDelay(MergedLogs::tick, TICK_MS, TICK_MS, TimeUnit.MILLISECONDS);
    // Before Hadoop closes its file systems, which would cut the files off unsealed.
    ShutdownHookManager.get()
        .addShutdownHook(MergedLogs::sealAll, FileSystem.SHUTDOWN_HOOK_PRIORITY + 20, 10, TimeUnit.SECONDS);
  }

  private static volatile boolean cleanByThemselves = true;

  private MergedLogs() {}

  static boolean cleanByThemselves() {
    return cleanByThemselves;
  }

  /** For tests that count what a round does: whether rounds of cleaning come without {@link MergedLog#clean}. */
  static void cleanByThemselves(boolean whether) {
    cleanByThemselves = whether;
  }

  /**
   * The log of a checkpoint.
   *
   * @param stateDirectory qualified {@code <checkpoint>/state} on {@code fs}
   * @param options how to work from now on
   * @param identity what headers of new files say of this process
   * @param localDirectory makes a local directory for spilled payload
   * @param taskSlots how many tasks run at the same time in this process
   * @param occasions of the question that is asked; where it opens the log, the first refresh serves them
   */
  public static MergedLog of(
      FileSystem fs,
      org.apache.hadoop.fs.Path stateDirectory,
      Options options,
      Supplier<Map<String, String>> identity,
      Supplier<Path> localDirectory,
      IntSupplier taskSlots,
      Object... occasions)
      throws IOException {
    String key = stateDirectory.toString();
    MergedLog log = LOGS.get(key);
    if (log == null) {
      synchronized (LOGS) {
        log = LOGS.get(key);
        if (log == null) {
          log = new MergedLog(
              stateDirectory.getParent().toString(), fs, stateDirectory, options, identity, localDirectory, taskSlots,
              THREADS, occasions);
          LOGS.put(key, log);
          return log;
        }
      }
    }
    log.options(options);
    return log;
  }

  /** The log of a state directory where it is open already, else null. */
  public static MergedLog open(org.apache.hadoop.fs.Path stateDirectory) {
    return LOGS.get(stateDirectory.toString());
  }

  /** Forgets the logs of checkpoints below a directory that was deleted. */
  public static void forgetBelow(org.apache.hadoop.fs.Path directory) {
    String prefix = directory.toString();
    LOGS.forEach((key, log) -> {
      if (key.equals(prefix) || key.startsWith(prefix.endsWith("/") ? prefix : prefix + "/")) {
        LOGS.remove(key);
        log.abandon();
      }
    });
  }

  /** The logs that are open, by the location of their state directory. */
  public static Map<String, MergedLog> all() {
    return Map.copyOf(LOGS);
  }

  private static void tick() {
    LOGS.values().forEach(log -> {
      try {
        log.tick();
      } catch (RuntimeException | Error e) {
        LOG.warn("Housekeeping of {} failed and is tried again", log.checkpoint(), e);
      }
    });
  }

  /** Seals the files of all logs. */
  public static void sealAll() {
    LOGS.values().forEach(log -> {
      try {
        log.seal();
      } catch (RuntimeException | Error e) {
        LOG.warn("Could not seal the files of {}; all its groups are durable", log.checkpoint(), e);
      }
    });
  }

  private static ThreadFactory daemons(String name) {
    AtomicInteger count = new AtomicInteger();
    return task -> {
      Thread thread = new Thread(task, name + "-" + count.incrementAndGet());
      thread.setDaemon(true);
      return thread;
    };
  }
}
