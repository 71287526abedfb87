package io.pyspark.statestore.tables;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.index.Segment;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The SSTs that this host has fetched or written, kept for all executors and applications of one user. A restart, or a
 * partition that moves to another executor of the host, fetches nothing that is here.
 *
 * <pre>
 * &lt;cache.dir&gt;/            0700, of the user whose process this is, or it is not used
 *   1/                    the layout's version
 *     7f/                 the first byte of the checksum
 *       000012-&lt;uuid&gt;.sst-7f03ac11-48211      the SST's name, crc32c and length
 *     new/                what is being copied; nothing here is read
 * </pre>
 *
 * <p>Why that is safe: an SST is written once, under a name with a UUID that no other file ever has, so an entry never
 * becomes old. What is taken out is linked to its target first and then read and checked, whatever else happens to the
 * entry meanwhile. An entry that does not have the checksum which the checkpoint says is deleted, and the SST is
 * fetched. So the cache needs no locks between processes, and anybody may delete any part of it at any time.
 *
 * <p>An entry and the store's own file are one file with two names, where both are on the same disk. Otherwise what is
 * fetched is copied, and what is written is not kept, as no commit waits for a copy. When there is more than {@code
 * cache.sizeLimit}, or less than a tenth of the disk is free, what was used longest ago is deleted, and what stores of
 * this host have open now goes last.
 */
final class HostCache {
  private static final Logger LOG = LoggerFactory.getLogger(HostCache.class);

  private static final String LAYOUT = "1";
  private static final String NEW = "new";

  /** As Spark names the SSTs that it uploads. */
  private static final Pattern NAME = Pattern.compile("\\d{1,12}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\\.sst");

  private static final Set<PosixFilePermission> MINE = PosixFilePermissions.fromString("rwx------");

  /** One part in so many of the disk stays free. */
  private static final int FREE_SHARE = 10;

  /** The cache is tidied up each time when so much of its limit was added. */
  private static final int TIDY_SHARE = 20;

  /** With a full disk it is tidied up so often at most. */
  private static final long TIDY_NANOS = 10_000_000_000L;

  /** What a process that died was copying is deleted after so long. */
  private static final long ABANDONED_MS = 3_600_000;

  private static final ThreadLocal<ByteBuffer> BUFFER =
      ThreadLocal.withInitial(() -> ByteBuffer.allocateDirect(1 << 18));

  /** By the directory's name as the option has it. */
  private static final Map<String, HostCache> CACHES = new ConcurrentHashMap<>();

  private static final HostCache NONE = new HostCache(null, null);

  /** {@code inUse}: it has another name on this disk, so a store has it now. */
  private record Entry(Path path, long size, boolean inUse, FileTime used) {}

  /** Null where nothing is cached. */
  private final Path root;

  private final UserPrincipal user;
  private volatile long limit;

  /** Others may have filled it, so that it is tidied up with the first SST that is added. */
  private final AtomicLong sinceTidied = new AtomicLong(Long.MAX_VALUE / 2);

  private volatile long tidiedNanos = System.nanoTime() - TIDY_NANOS;
  private final AtomicBoolean saidWhyNot = new AtomicBoolean();

  private HostCache(Path root, UserPrincipal user) {
    this.root = root;
    this.user = user;
  }

  /** The cache that a checkpoint's options ask for; one that is always empty where they ask for none. */
  static HostCache of(Options options) {
    if (options.cacheSizeLimit() == 0) {
      return NONE;
    }
    String named = options.cacheDir();
    if (named.isEmpty()) {
      String name = "pyspark-statestore-cache-" + System.getProperty("user.name");
      named = Path.of(System.getProperty("java.io.tmpdir"), name).toString();
    }
    HostCache cache = CACHES.computeIfAbsent(named, HostCache::open);
    if (cache.root != null) {
      cache.limit = options.cacheSizeLimit();
    }
    return cache;
  }

  private static HostCache open(String named) {
    try {
      Path root = Path.of(named).toAbsolutePath().normalize();
      if (root.getParent() == null) {
        throw new IOException("it is the root of a file system");
      }
      Files.createDirectories(root.getParent());
      // Java does not say who the user is, but who owns what the user makes.
      Path probe = Files.createTempFile("pyspark-statestore", ".owner");
      UserPrincipal user = Files.getOwner(probe);
      Files.delete(probe);
      HostCache cache = new HostCache(root, user);
      cache.requireMine();
      return cache;
    } catch (IOException | InvalidPathException | UnsupportedOperationException e) {
      LOG.warn(
          "SSTs are not cached on this host: {} cannot be used ({}). What to do: name another directory in"
              + " {}cache.dir, or set {}cache.sizeLimit to 0",
          named,
          e.getMessage(),
          Options.PREFIX,
          Options.PREFIX);
      return NONE;
    }
  }

  /**
   * Makes the directory, or checks that nobody else can write to the one that is there. It is asked each time: once the
   * directory was deleted, anybody may make one of that name.
   */
  private void requireMine() throws IOException {
    try {
      Files.createDirectory(root, PosixFilePermissions.asFileAttribute(MINE));
    } catch (FileAlreadyExistsException e) {
      PosixFileAttributes found = Files.readAttributes(root, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
      if (!found.isDirectory() || !found.permissions().equals(MINE) || !found.owner().equals(user)) {
        throw new IOException(root + " is no directory of " + user.getName() + " with the permissions rwx------");
      }
    }
  }

  /** Whether an SST is probably here. */
  boolean has(Segment segment) {
    Path entry = entry(segment);
    return entry != null && Files.isRegularFile(entry, LinkOption.NOFOLLOW_LINKS);
  }

  /**
   * Puts an SST to where a store wants it, and where nothing is yet.
   *
   * @return false where it is not here, or is damaged; nothing is at the target then
   */
  boolean linkTo(Segment segment, Path target) throws IOException {
    Path entry = entry(segment);
    if (entry == null) {
      return false;
    }
    boolean good = false;
    try {
      requireMine();
      linkOrCopy(entry, target);
      good = isWhole(segment, target);
      if (good) {
        touch(entry);
      } else {
        LOG.info("{} is damaged; it is deleted, and state/{} is fetched", entry, segment.path());
        Files.deleteIfExists(entry);
      }
    } catch (NoSuchFileException e) {
      // It was never here, or another process has just deleted it.
    } catch (IOException e) {
      LOG.info("{} cannot be read, so state/{} is fetched", entry, segment.path(), e);
    } finally {
      if (!good) {
        Files.deleteIfExists(target);
      }
    }
    return good;
  }

  /** Keeps an SST that was fetched and checked. A failure is no reason to stop. */
  void fetched(Segment segment, Path file) {
    add(segment, file, true);
  }

  /** Keeps an SST that was written, unless that takes a copy. A failure is no reason to stop. */
  void written(Segment segment, Path file) {
    add(segment, file, false);
  }

  private void add(Segment segment, Path file, boolean mayCopy) {
    Path entry = entry(segment);
    if (entry == null) {
      return;
    }
    try {
      if (PartialFiles.at(file) != null) {
        // It would be found out when it is taken, but it may be linked to a store that is just filling it.
        return;
      }
      requireMine();
      if (segment.length() > limit) {
        return;
      }
      Files.createDirectories(entry.getParent());
      try {
        // Takes no room as long as the store has the file.
        Files.createLink(entry, file);
      } catch (FileAlreadyExistsException e) {
        touch(entry);
        return;
      } catch (IOException | UnsupportedOperationException e) {
        if (!mayCopy) {
          if (saidWhyNot.compareAndSet(false, true)) {
            LOG.info(
                "SSTs that are written are not kept in {}, only those that are fetched: it is on another disk than"
                    + " {}",
                root,
                file);
          }
          return;
        }
        if (isDiskFull(segment.length())) {
          return;
        }
        Path copied = Files.createDirectories(root.resolve(LAYOUT).resolve(NEW)).resolve(UUID.randomUUID().toString());
        try {
          Files.copy(file, copied);
          Files.move(copied, entry, StandardCopyOption.ATOMIC_MOVE);
        } finally {
          Files.deleteIfExists(copied);
        }
      }
      touch(entry);
      tidyIfDue(segment.length());
    } catch (IOException | UncheckedIOException e) {
      LOG.info("Could not keep state/{} in {}", segment.path(), root, e);
    }
  }

  private Path entry(Segment segment) {
    String name = segment.path().substring(segment.path().lastIndexOf('/') + 1);
    if (root == null || !NAME.matcher(name).matches()) {
      return null;
    }
    String crc = String.format("%08x", segment.entry().crc32c());
    return root.resolve(LAYOUT).resolve(crc.substring(0, 2)).resolve(name + "-" + crc + "-" + segment.length());
  }

  private static void linkOrCopy(Path from, Path to) throws IOException {
    try {
      Files.createLink(to, from);
    } catch (NoSuchFileException e) {
      throw e;
    } catch (IOException | UnsupportedOperationException e) {
      Files.copy(from, to, LinkOption.NOFOLLOW_LINKS);
    }
  }

  private static boolean isWhole(Segment segment, Path file) throws IOException {
    if (!Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS) || Files.size(file) != segment.length()) {
      return false;
    }
    CRC32C crc = new CRC32C();
    // Not through a stream, which copies what it reads once more: a restart reads all of its state here.
    ByteBuffer buffer = BUFFER.get();
    try (FileChannel in = FileChannel.open(file, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
      while (in.read(buffer.clear()) >= 0) {
        crc.update(buffer.flip());
      }
    }
    return (int) crc.getValue() == segment.entry().crc32c();
  }

  private static void touch(Path entry) throws IOException {
    try {
      Files.setLastModifiedTime(entry, FileTime.fromMillis(System.currentTimeMillis()));
    } catch (NoSuchFileException e) {
      // Another process has deleted it.
    }
  }

  /** Whether less than its share of the disk is free, or would be with so many more bytes. */
  private boolean isDiskFull(long more) throws IOException {
    FileStore disk = Files.getFileStore(root);
    return disk.getUsableSpace() - more < disk.getTotalSpace() / FREE_SHARE;
  }

  private void tidyIfDue(long added) throws IOException {
    long now = System.nanoTime();
    boolean isDue = sinceTidied.addAndGet(added) > limit / TIDY_SHARE;
    // Others may fill the disk all the time, and each look goes through all entries.
    if (isDue || now - tidiedNanos >= TIDY_NANOS && isDiskFull(0)) {
      sinceTidied.set(0);
      tidiedNanos = now;
      tidy();
    }
  }

  /**
   * Deletes what was used longest ago until the cache is within its bounds, and last what stores have now: that is what
   * the next load of them needs, and to delete its entry frees nothing while the store has it.
   */
  private void tidy() throws IOException {
    List<Entry> entries = new ArrayList<>();
    long now = System.currentTimeMillis();
    try (Stream<Path> all = Files.walk(root.resolve(LAYOUT), 2)) {
      for (Path each : (Iterable<Path>) all::iterator) {
        try {
          Map<String, Object> found =
              Files.readAttributes(each, "unix:isRegularFile,size,nlink,lastModifiedTime", LinkOption.NOFOLLOW_LINKS);
          FileTime used = (FileTime) found.get("lastModifiedTime");
          boolean isNew = each.getParent().endsWith(NEW);
          if ((boolean) found.get("isRegularFile") && !isNew) {
            entries.add(new Entry(each, (long) found.get("size"), (int) found.get("nlink") > 1, used));
          } else if (isNew && now - used.toMillis() > ABANDONED_MS) {
            Files.deleteIfExists(each);
          }
        } catch (NoSuchFileException e) {
          // Another process has deleted it.
        }
      }
    } catch (UncheckedIOException e) {
      throw e.getCause();
    }
    entries.sort(Comparator.comparing(Entry::inUse).thenComparing(Entry::used));
    long held = entries.stream().mapToLong(Entry::size).sum();
    for (Entry each : entries) {
      if (held <= limit && (each.inUse() || !isDiskFull(0))) {
        return;
      }
      Files.deleteIfExists(each.path());
      held -= each.size();
    }
  }
}
