package io.pyspark.statestore.log;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What payloads take of this process: memory up to a bound that all streams of a checkpoint share, then a local
 * directory.
 */
public final class LocalSpace {
  private static final Logger LOG = LoggerFactory.getLogger(LocalSpace.class);

  private final Supplier<Path> createDirectory;
  private final AtomicLong memoryUsed = new AtomicLong();
  private volatile Path directory;

  /** Local space in a directory that is created when it is first needed. */
  public LocalSpace(Supplier<Path> createDirectory) {
    this.createDirectory = createDirectory;
  }

  boolean reserve(long bytes, long bound) {
    if (memoryUsed.addAndGet(bytes) <= bound) {
      return true;
    }
    memoryUsed.addAndGet(-bytes);
    return false;
  }

  void release(long bytes) {
    memoryUsed.addAndGet(-bytes);
  }

  /** Payload bytes in memory now. */
  public long memoryUsed() {
    return memoryUsed.get();
  }

  /** A name for a new local file. */
  Path newFile(String suffix) {
    Path known = directory;
    if (known == null || !Files.isDirectory(known)) {
      // Without a lock, since Spark makes it and takes its own; where two threads do, both directories are good.
      known = createDirectory.get();
      directory = known;
    }
    return known.resolve(UUID.randomUUID() + suffix);
  }

  /**
   * Keeps an immutable local file for later, even when its owner deletes it: a hard link, or a copy where the
   * directories are on different file systems.
   */
  Payload keep(Path file) throws IOException {
    Path kept = newFile("-" + file.getFileName());
    try {
      Files.createLink(kept, file);
    } catch (IOException | UnsupportedOperationException e) {
      Files.copy(file, kept);
    }
    return Payload.ofFile(kept);
  }

  static void deleteQuietly(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      LOG.warn("Could not delete the local file {}", file, e);
    }
  }
}
