package io.pyspark.statestore.tables;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * What the {@link LocalCache} counts of a store, and nothing may go of: SSTs that the checkpoint does not have yet,
 * those that are too small to have parts, and those that had to become whole. A file of which parts may go counts
 * itself.
 */
final class StayingFiles {
  static final String SST = ".sst";

  /**
   * All of a file.
   *
   * @param isDurable whether the checkpoint has it
   */
  private record Staying(long bytes, boolean isDurable) {
    static final Staying NOTHING = new Staying(0, true);

    long own() {
      return isDurable ? 0 : bytes;
    }
  }

  private final LocalCache cache;

  /** By name. Guarded by itself, as is the end. */
  private final Map<String, Staying> files = new HashMap<>();

  private boolean isClosed;

  StayingFiles(LocalCache cache) {
    this.cache = cache;
  }

  /** RocksDB has made a file. The checkpoint does not have it. */
  void created(String name, long bytes) {
    put(name, new Staying(bytes, false));
  }

  /** A file that the checkpoint has is whole for good. */
  void isWhole(String name, long bytes) {
    put(name, new Staying(bytes, true));
  }

  /** A file is durable, and stays all the same. */
  void becameDurable(String name) {
    Staying before;
    Staying now;
    synchronized (files) {
      before = files.getOrDefault(name, Staying.NOTHING);
      now = files.computeIfPresent(name, (any, file) -> new Staying(file.bytes(), true));
    }
    if (now != null) {
      changed(before, now);
    }
  }

  /** A file is deleted, or counts itself from now on. */
  void remove(String name) {
    put(name, Staying.NOTHING);
  }

  /** Counts what is in a directory and was copied whole. The checkpoint has all of a version that was loaded. */
  void loaded(Path directory) throws IOException {
    Map<String, Staying> found = new HashMap<>();
    try (DirectoryStream<Path> all = Files.newDirectoryStream(directory, "*" + SST)) {
      for (Path path : all) {
        if (PartialFiles.at(path) == null) {
          found.put(path.getFileName().toString(), new Staying(Files.size(path), true));
        }
      }
    }
    Set<String> gone;
    synchronized (files) {
      gone = new HashSet<>(files.keySet());
    }
    gone.removeAll(found.keySet());
    gone.forEach(this::remove);
    found.forEach(this::put);
  }

  /** The store is closed, and its files are deleted. */
  void close() {
    synchronized (files) {
      isClosed = true;
      files.values().forEach(file -> changed(file, Staying.NOTHING));
      files.clear();
    }
  }

  private void put(String name, Staying now) {
    Staying before;
    synchronized (files) {
      if (isClosed) {
        return;
      }
      before = now == Staying.NOTHING ? files.remove(name) : files.put(name, now);
    }
    changed(before == null ? Staying.NOTHING : before, now);
  }

  private void changed(Staying before, Staying now) {
    cache.stays(now.bytes() - before.bytes(), now.own() - before.own());
  }
}
