package io.pyspark.statestore.write;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where payloads wait to be written: in memory up to a bound that all streams of a checkpoint share, then in a local
 * directory.
 */
public final class LocalSpace {
  private static final Logger LOG = LoggerFactory.getLogger(LocalSpace.class);

  /**
   * Bytes of payload that a process has in memory for one checkpoint. The changelogs and deltas of a batch mostly fit.
   * What does not is large, and takes so long to write that the way over the local disk counts for little.
   */
  static final long MEMORY = 8 << 20;

  private final Supplier<Path> createDirectory;
  private final AtomicLong memoryUsed = new AtomicLong();
  private volatile Path directory;

  /** Makes local space in a directory that is created when it is first needed. */
  public LocalSpace(Supplier<Path> createDirectory) {
    this.createDirectory = createDirectory;
  }

  boolean reserve(long bytes) {
    if (memoryUsed.addAndGet(bytes) <= MEMORY) {
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

  /** Names a new local file. */
  Path newFile(String suffix) {
    Path known = directory;
    if (known == null || !Files.isDirectory(known)) {
      // Without a lock, because Spark makes the directory under its own. If two threads get here, either one will do.
      known = createDirectory.get();
      directory = known;
    }
    return known.resolve(UUID.randomUUID() + suffix);
  }

  /**
   * Keeps an immutable local file for later, even if its owner deletes it: by a hard link, or by a copy where the
   * directories are on different file systems.
   */
  public Payload keep(Path file) throws IOException {
    Path kept = newFile("-" + file.getFileName());
    try {
      Files.createLink(kept, file);
    } catch (IOException | UnsupportedOperationException e) {
      Files.copy(file, kept);
    }
    return Payload.ofFile(kept);
  }

  /** Keeps an immutable local file as itself, by a hard link. Fails where that is not possible. */
  public Payload link(Path file) throws IOException {
    Path kept = newFile("-" + file.getFileName());
    try {
      Files.createLink(kept, file);
    } catch (UnsupportedOperationException e) {
      throw new IOException(e);
    }
    return Payload.ofFile(kept);
  }

  static void deleteQuietly(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      LOG.warn("Could not delete the local file {}. What to do: delete it when this process has ended", file, e);
    }
  }
}
