package io.pyspark.statestore.fs;

import io.pyspark.statestore.Unchecked;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * One of Spark's own logs ({@code offsets}, {@code commits}, {@code sources/0}, the list of a file sink), on HDFS or
 * S3A, with fewer calls than Spark's manager makes. The files are the same.
 *
 * <p>What keeps two drivers apart is that of two that add an entry one fails. That stays as the file system does it:
 * nothing here answers whether an entry may be written. {@code docs/decisions/0023} has each call that is left out, why
 * its answer cannot matter, and each that stays.
 */
final class SparksLog implements FileManager {
  /** The key prefix by which tests say of a scheme how it is: {@link Kind}. */
  static final String KIND = "io.pyspark.statestore.logs.";

  /** A setting of Spark's: it looks for each file that it has renamed, because the file system needs that. */
  private static final String RENAMED_FILE_CHECK = "spark.sql.streaming.checkpoint.renamedFileCheck.enabled";

  /** A setting of Spark's: where it is false, Spark reads an entry each time that it needs it. */
  private static final String CACHES = "spark.sql.streaming.metadataCache.enabled";

  private static final Map<String, Kind> KINDS =
      Map.of(
          "org.apache.hadoop.hdfs.DistributedFileSystem",
          Kind.RENAMES,
          "org.apache.hadoop.fs.s3a.S3AFileSystem",
          Kind.COPIES);

  private static final Pattern ENTRY = Pattern.compile("(\\d{1,18})(?:\\.compact)?");

  /** Spark asks for the entry of the batch before; a source's log repeats its last ten. */
  private static final int KEPT = 2;

  private static final int KEPT_OF_SOURCE = 100;

  /** Spark looks for expired entries of a source or sink with each batch. Here it finds them with every tenth. */
  private static final int EXPIRY_INTERVAL = 10;

  /** How far up the caller of a manager is looked for: Spark's log calls it itself, or in a function of Scala's. */
  private static final int FRAMES = 30;

  /** How a file system renames. Of others nobody has looked, and Spark's manager does all there. */
  enum Kind {
    /** In one call, which fails if the target is there. */
    RENAMES,

    /** By a copy and a deletion, after looks at what is there. */
    COPIES
  }

  private final FileManager sparks;

  /** Only to qualify paths: others may close it. */
  private final FileSystem fs;

  private final Path directory;
  private final OwnEntries own;

  /** Null where Spark's manager adds and deletes all entries. */
  private final OwnFileSystem ownFs;

  /** Whether entries are renamed here, and not by Spark's manager. */
  private final boolean renames;

  /** Null where Spark's manager deletes all entries. */
  private final PurgedEntries purged;

  private int expiriesCount;

  private SparksLog(
      FileManager sparks, FileSystem fs, Path directory, OwnEntries own, OwnFileSystem ownFs, boolean renames) {
    this.sparks = sparks;
    this.fs = fs;
    this.directory = directory;
    this.own = own;
    this.ownFs = ownFs;
    this.renames = renames;
    this.purged = ownFs == null ? null : new PurgedEntries(ownFs, directory);
  }

  /**
   * The manager of a location.
   *
   * @param sparks Spark's own, which it stays where the location is no log, or on another file system
   * @param location real path
   */
  static FileManager over(FileManager sparks, Path location, Configuration conf) throws IOException {
    if (!isLog(location)) {
      return sparks;
    }
    FileSystem fs = location.getFileSystem(conf);
    Kind kind = kind(fs, conf);
    if (kind == null) {
      return sparks;
    }
    Path directory = fs.makeQualified(location);
    OwnEntries own = new OwnEntries(keptOf(directory, conf));
    if (kind == Kind.RENAMES) {
      return new SparksLog(sparks, fs, directory, own, null, false);
    }
    boolean renames = !conf.getBoolean(RENAMED_FILE_CHECK, false);
    return new SparksLog(sparks, fs, directory, own, new OwnFileSystem(directory.toUri(), conf), renames);
  }

  private static Kind kind(FileSystem fs, Configuration conf) {
    String said = conf.get(KIND + fs.getUri().getScheme());
    return said == null ? KINDS.get(fs.getClass().getName()) : Kind.valueOf(said.toUpperCase(Locale.ROOT));
  }

  private static boolean isLog(Path location) {
    return switch (location.getName()) {
      case "offsets", "commits", "_spark_metadata" -> true;
      default -> isOfSource(location);
    };
  }

  private static boolean isOfSource(Path location) {
    Path parent = location.getParent();
    return parent != null && parent.getName().equals("sources") && location.getName().matches("\\d+");
  }

  /** Nothing of a sink's list is kept: {@code Sink.compact} replaces entries of it while the query runs. */
  private static int keptOf(Path log, Configuration conf) {
    if (log.getName().equals("_spark_metadata") || !conf.getBoolean(CACHES, true)) {
      return 0;
    }
    return isOfSource(log) ? KEPT_OF_SOURCE : KEPT;
  }

  /** The number of an entry of this log; -1 for all else. */
  private long number(Path path) {
    Matcher name = ENTRY.matcher(path.getName());
    boolean isEntry = name.matches() && directory.equals(qualified(path).getParent());
    return isEntry ? Long.parseLong(name.group(1)) : -1;
  }

  private Path qualified(Path path) {
    return fs.makeQualified(path);
  }

  @Override
  public AtomicFile createAtomic(Path path, boolean overwriteIfPossible) {
    long number = number(path);
    if (number < 0) {
      return sparks.createAtomic(path, overwriteIfPossible);
    }
    if (overwriteIfPossible) {
      own.forget(path.getName());
      return sparks.createAtomic(path, true);
    }
    if (path.getName().endsWith(OwnEntries.COMPACT)) {
      forgetIfGone();
    }
    return new OwnEntry(renames ? renamed(qualified(path)) : sparks.createAtomic(path, false), path.getName(), number);
  }

  /**
   * Before Spark repeats the log in an entry. Where somebody has deleted the log, it is read, and Spark says that it is
   * gone; out of memory the query would go on without it.
   */
  private void forgetIfGone() {
    String first = own.firstRepeated();
    if (first != null && !sparks.exists(new Path(directory, first))) {
      own.forgetAll();
    }
  }

  private AtomicFile renamed(Path path) {
    try {
      return new RenamedEntry(ownFs.get(), path);
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    byte[] content = number(path) < 0 ? null : own.content(path.getName());
    return content == null ? sparks.open(path) : BytesInput.of(content);
  }

  @Override
  public boolean exists(Path path) {
    long number = number(path);
    // Nobody else removes an entry that this run still needs. If somebody has, opening it says so.
    if (number >= 0 && own.has(path.getName())) {
      return true;
    }
    // Spark asks before it adds an entry. Whoever adds it learns the same at the end of that, and for certain.
    boolean isNext = own.newest() >= 0 && number == own.newest() + 1;
    if (isNext && isCalledBy("HDFSMetadataLog", "addNewBatchByStream")) {
      return false;
    }
    return !isPurged(path) && sparks.exists(path);
  }

  @Override
  public FileStatus[] list(Path path) {
    boolean isMine = directory.equals(qualified(path));
    if (isMine && isCalledBy("CompactibleFileStreamLog", "deleteExpiredLog") && !isExpiryDue()) {
      return new FileStatus[0];
    }
    FileStatus[] all = sparks.list(path);
    return isMine && purged != null
        ? Arrays.stream(all).filter(each -> !isPurged(each.getPath())).toArray(FileStatus[]::new)
        : all;
  }

  private synchronized boolean isExpiryDue() {
    return expiriesCount++ % EXPIRY_INTERVAL == 0;
  }

  private boolean isPurged(Path path) {
    return purged != null && purged.contains(qualified(path));
  }

  @Override
  public void delete(Path path) {
    long number = number(path);
    if (number >= 0) {
      own.forget(path.getName());
    }
    // A run that goes back before batches deletes their entries before it adds any: these are gone at once.
    if (number < 0 || number >= own.newest() || !isDeletedWithOthers(qualified(path))) {
      sparks.delete(path);
    }
  }

  /** Has an entry deleted with others; false where that is not possible. */
  private boolean isDeletedWithOthers(Path entry) {
    try {
      return purged != null && purged.add(entry);
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
  }

  /** Whether this is asked for a method of Spark's. In which package its class is depends on the version. */
  private static boolean isCalledBy(String simpleName, String method) {
    return StackWalker.getInstance()
        .walk(
            frames ->
                frames
                    .limit(FRAMES)
                    .anyMatch(
                        frame ->
                            frame.getMethodName().equals(method) && frame.getClassName().endsWith("." + simpleName)));
  }

  @Override
  public void mkdirs(Path path) {
    sparks.mkdirs(path);
  }

  @Override
  public boolean isLocal() {
    return sparks.isLocal();
  }

  @Override
  public Path createCheckpointDirectory() {
    return sparks.createCheckpointDirectory();
  }

  @Override
  public void close() {
    sparks.close();
    try {
      if (ownFs != null) {
        ownFs.close();
      }
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
  }

  /** An entry that this run adds. It is known once it is there. */
  private final class OwnEntry implements AtomicFile {
    private final AtomicFile entry;
    private final String name;
    private final long number;
    private final Copied copied;
    private boolean finished;

    OwnEntry(AtomicFile entry, String name, long number) {
      this.entry = entry;
      this.name = name;
      this.number = number;
      this.copied = new Copied(entry.out());
    }

    @Override
    public OutputStream out() {
      return copied;
    }

    @Override
    public void close() throws IOException {
      if (finished) {
        return;
      }
      finished = true;
      entry.close();
      own.added(name, number, copied.content());
    }

    @Override
    public void cancel() {
      // After a close that failed, Spark's file does nothing here, and ours as little.
      entry.cancel();
    }
  }

  /** What is written, and a copy of it as long as that is short. */
  private static final class Copied extends OutputStream {
    private final OutputStream out;
    private ByteArrayOutputStream copy = new ByteArrayOutputStream();

    Copied(OutputStream out) {
      this.out = out;
    }

    byte[] content() {
      return copy == null ? null : copy.toByteArray();
    }

    @Override
    public void write(int b) throws IOException {
      write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      out.write(bytes, offset, length);
      if (copy != null) {
        copy.write(bytes, offset, length);
        copy = copy.size() > OwnEntries.longest() ? null : copy;
      }
    }

    @Override
    public void flush() throws IOException {
      out.flush();
    }

    @Override
    public void close() throws IOException {
      out.close();
    }
  }
}
