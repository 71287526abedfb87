package io.pyspark.statestore.tables;

import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** Lets a test decide which files of a lazy load have holes, and how large these are. */
public final class Lazily {
  private Lazily() {}

  /** From now on files of so many bytes have holes. */
  public static void from(long smallest, int chunkBytes, int end) {
    PartialFile.smallest = smallest;
    PartialFile.chunkBytes = chunkBytes;
    LazyLoad.end = end;
  }

  /** From now on all files have holes, however small. */
  public static void everywhere() {
    from(600, 256, 256);
  }

  /** As in production. */
  public static void asEver() {
    from(1 << 20, 1 << 10, 64 << 10);
    pause(false);
    readsGoFirstFor(100);
    lostAfter(120_000);
    farApart(120_000);
    wholeAt(100 << 20);
  }

  /** How many bytes of a whole file are thought to come in a second. */
  public static void wholeAt(long bytesPerSecond) {
    PartialFile.wholeBytesPerSecond = bytesPerSecond;
  }

  /** For how long a source may be gone. */
  public static void lostAfter(long ms) {
    PartialFile.lostAfterNanos = TimeUnit.MILLISECONDS.toNanos(ms);
  }

  /** After how long without a look at the source it may have been there meanwhile. */
  public static void farApart(long ms) {
    PartialFile.farApartNanos = TimeUnit.MILLISECONDS.toNanos(ms);
  }

  /** For how long the background leaves the way to reads after one has waited. */
  public static void readsGoFirstFor(long ms) {
    Hydrator.latelyNanos = TimeUnit.MILLISECONDS.toNanos(ms);
  }

  /** Whether nothing is fetched in the background from now on. */
  public static void pause(boolean paused) {
    Hydrator.paused = paused;
  }

  /** Whether parts of a local file are missing. */
  public static boolean isPartial(String path) throws Exception {
    return PartialFiles.at(Path.of(path)) != null;
  }

  /** How many files of this process are not whole. */
  public static int partialFiles() {
    return PartialFiles.allKeys().size();
  }
}
