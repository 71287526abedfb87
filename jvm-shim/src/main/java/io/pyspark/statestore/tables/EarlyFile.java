package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.write.LocalSpace;
import io.pyspark.statestore.write.Payload;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.UUID;
import java.util.zip.CRC32C;

/** An SST that RocksDB has made, and what has become of its upload. The monitor of its {@link EarlyFiles} guards it. */
public final class EarlyFile {
  /** What there is of it in the checkpoint. */
  enum State {
    /** Nothing yet. */
    WAITING,
    /** Its group is being written. */
    WRITING,
    /** Its segment is durable. No snapshot names it. */
    WRITTEN,
    /** A snapshot that is durable names it. */
    PUBLISHED,
    /** Nothing that a snapshot may rely on. It is written with the snapshot that names it. */
    GIVEN_UP
  }

  /** A segment that no snapshot names is safe from others for a day. A snapshot relies on it for so long. */
  static final long RELIABLE_MS = 12L * 3_600_000;

  /** Tests rely on it for less. */
  static volatile long reliableMs = RELIABLE_MS;

  private static final int BUFFER = 1 << 16;

  private final EarlyFiles owner;

  /** In RocksDB's directory. */
  private final Path local;

  /** In the checkpoint, relative to {@code state/}. */
  private final String path;

  /** What tells the file from all others on its disk. */
  private final Object identity;

  private final long bytes;
  private final long createdMs = nowMs();

  State state = State.WAITING;

  /** Whether RocksDB has the file no more. */
  boolean isGone;

  /** Whether nobody is going to need it. Read without the monitor while it is written. */
  volatile boolean isUnneeded;

  /** Of the snapshot for which Spark has asked for its name last; null where it never has. */
  String suffix;

  /** How many snapshots that rely on it are being written. */
  int publishing;

  /** Whether a snapshot names it of which nobody knows whether it is durable. */
  boolean mayBeNamed;

  /** How many snapshots were published without it since RocksDB has deleted it. */
  int leftOut;

  private Payload kept;

  /** As long as it is read for its upload: it may become durable under another name, and parts of it go then. */
  private PartialFiles.Pin pin;

  private Entry entry;

  /** A machine may have slept meanwhile, and others have not. */
  private Clocks.Stopwatch sinceWritten;

  /** Whether what Spark has handed over under its name is this file. */
  private boolean isHandedOver;

  EarlyFile(EarlyFiles owner, Path local, String path, Object identity, long bytes) {
    this.owner = owner;
    this.local = local;
    this.path = path;
    this.identity = identity;
    this.bytes = bytes;
  }

  public EarlyFiles owner() {
    return owner;
  }

  String path() {
    return path;
  }

  /** Its name in the checkpoint. */
  String name() {
    return path.substring(path.lastIndexOf('/') + 1);
  }

  long bytes() {
    return bytes;
  }

  long createdMs() {
    return createdMs;
  }

  /** Milliseconds of a clock that only goes forward. */
  static long nowMs() {
    return System.nanoTime() / 1_000_000;
  }

  /** Whether Spark was given its name, so that a snapshot may name it. */
  boolean isNamed() {
    return suffix != null;
  }

  /**
   * Keeps the file, so that it can be read until {@link #wasRead}, and no other file gets its identity.
   *
   * @throws IOException where it is not there any more, or another file has its name
   */
  Payload keep(LocalSpace space) throws IOException {
    Payload link = link(space);
    PartialFiles.Pin whole = PartialFiles.pinned(identity);
    boolean done = false;
    try {
      if (!identity.equals(PartialFiles.keyOf(link.file())) || link.length() != bytes) {
        throw new IOException(local + " is another file than before");
      }
      if (PartialFiles.at(link.file()) != null) {
        throw new IOException(local + " is not whole");
      }
      done = true;
    } finally {
      if (!done) {
        whole.close();
        link.close();
      }
    }
    pin = whole;
    kept = link;
    return link;
  }

  /** Its upload is over. */
  void wasRead() {
    if (pin != null) {
      pin.close();
    }
  }

  /** What tells the file from all others on its disk. */
  Object identity() {
    return identity;
  }

  /** On its own disk, which the checkpoint's local space may not be on. */
  private Payload link(LocalSpace space) throws IOException {
    try {
      return space.link(local);
    } catch (IOException e) {
      Path own = local.getParent().resolveSibling("uploads");
      Files.createDirectories(own);
      Path link = own.resolve(UUID.randomUUID() + "-" + local.getFileName());
      Files.createLink(link, local);
      return Payload.ofFile(link);
    }
  }

  void release() {
    if (kept != null) {
      kept.close();
    }
  }

  void written(Entry durable) {
    entry = durable;
    sinceWritten = new Clocks.Stopwatch();
    state = State.WRITTEN;
  }

  /** Whether its segment is there, and no snapshot can name it: nothing else of it is ever deleted here. */
  boolean isNobodys() {
    return state == State.WRITTEN && publishing == 0 && !mayBeNamed;
  }

  /** The entry of its segment, once that was durable. */
  Entry entry() {
    return entry;
  }

  /**
   * Compares a local file with the one that was uploaded: by its identity on the disk, which no other file has had
   * meanwhile, its length, and its bytes. Called without the monitor, because it reads the file.
   */
  boolean isSameAs(Path file, Entry uploaded) throws IOException {
    if (!identity.equals(PartialFiles.keyOf(file)) || Files.size(file) != bytes) {
      return false;
    }
    if (PartialFiles.at(file) != null) {
      return true; // parts of it went because it was uploaded, and come from there again
    }
    CRC32C crc = new CRC32C();
    byte[] buffer = new byte[BUFFER];
    try (InputStream in = Files.newInputStream(file)) {
      for (int read = in.read(buffer); read >= 0; read = in.read(buffer)) {
        crc.update(buffer, 0, read);
      }
    }
    return (int) crc.getValue() == uploaded.crc32c();
  }

  void handedOver() {
    isHandedOver = true;
  }

  /** Whether a snapshot need not bring it, given what lives at its path. */
  boolean isReliable(Segment live) {
    return (state == State.WRITTEN || state == State.PUBLISHED)
        && isHandedOver
        && sinceWritten.elapsedMs() < reliableMs
        && live != null
        && live.length() == bytes
        && live.entry().crc32c() == entry.crc32c();
  }
}
