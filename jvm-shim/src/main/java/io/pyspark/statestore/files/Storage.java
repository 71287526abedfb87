package io.pyspark.statestore.files;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.format.PathRules;
import io.pyspark.statestore.format.RangeSource;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * The directory of merged files, and all calls to its file system. Hadoop's local file system reports some failures as
 * an {@link FSError}, an Error; here they become exceptions like all others.
 */
public final class Storage {
  public static final String DIRECTORY = "_merged";
  public static final String SUFFIX = ".merged";

  /** Ends the names of index-only files, so that they can be read before the files that they repeat. */
  public static final String INDEX_SUFFIX = ".index.merged";

  public static final String RELOCATING_SUFFIX = ".relocating";
  public static final String PIN_SUFFIX = ".fork";
  public static final String OWN_PIN_SUFFIX = ".own";

  /** Ends the name of the file in which a fork says where it came from. */
  public static final String ORIGIN_SUFFIX = ".origin";

  /** Ends the name of the empty file that is there while a run of the query goes on. */
  public static final String RUNNING_SUFFIX = ".running";

  /** Ends the name of the file in which a run of the query says that it has ended. */
  public static final String ENDED_SUFFIX = ".ended";

  /** Options of S3A, which others ignore. */
  private static final String CREATE_UNCHECKED = "fs.s3a.create.performance";

  private static final String READ_POLICY_OF_OLD_S3A = "fs.s3a.experimental.input.fadvise";

  /** Of ABFS: a read of a range fetches that range, and not megabytes after it. */
  private static final String READ_UNBUFFERED = "fs.azure.buffered.pread.disable";

  /** Options of every file system since Hadoop 3.3.5, which has constants for them. */
  private static final String READ_POLICY = "fs.option.openfile.read.policy";

  private static final String WHOLE_LENGTH = "fs.option.openfile.length";

  /** Every file system lists so many names at once: HDFS and S3 a thousand, a local disk as many as fit in 32 KiB. */
  private static final int PAGE = 400;

  /**
   * End the names of files which say that the state is being, or was, written back as plain files (docs/migrate.md).
   */
  private static final Set<String> EXPORT_SUFFIXES = Set.of(".exporting", ".exported", ".dropping");

  private final FileSystem fs;
  private final boolean isObjectStore;
  private final Path stateDirectory;
  private final Path directory;

  /** Made when it is first needed. */
  private volatile BulkDeletion bulk;

  /** Whether the newest listing has shown that there are reference files, or were: an own pin, or a fork's origin. */
  private volatile boolean restsOnReferences;

  /** Of an object store, what the newest listing has shown, by name. */
  private volatile Map<String, FileStatus> shown = Map.of();

  /**
   * Makes the storage of one checkpoint.
   *
   * @param stateDirectory {@code <checkpoint>/state} on {@code fs}
   */
  public Storage(FileSystem fs, Path stateDirectory) {
    // The checksummed local file system would put a .crc beside every merged file, and cannot flush.
    this.fs = fs instanceof LocalFileSystem local ? local.getRawFileSystem() : fs;
    this.isObjectStore = ObjectStores.isOne(this.fs);
    this.stateDirectory = stateDirectory;
    this.directory = new Path(stateDirectory, DIRECTORY);
  }

  public Path directory() {
    return directory;
  }

  public Path stateDirectory() {
    return stateDirectory;
  }

  /** The checkpoint's location, for messages. */
  public String checkpoint() {
    return stateDirectory.getParent().toString();
  }

  /** Returns the names of the plain files in a store's directory; none where it does not exist. */
  public Set<String> plainFiles(String relative) throws IOException {
    Set<String> names = new HashSet<>();
    for (FileStatus status : listOrNone(new Path(stateDirectory, relative))) {
      names.add(status.getPath().getName());
    }
    return names;
  }

  /** Whether a path below {@code state/} is a plain file. */
  public boolean existsPlain(String relative) throws IOException {
    return fs.exists(new Path(stateDirectory, relative));
  }

  /** Returns where a merged file is: in the directory, or, for another checkpoint's file, at its path. */
  public Path path(String name) {
    return name.startsWith("/")
        ? new Path(directory.toUri().getScheme(), directory.toUri().getAuthority(), name)
        : new Path(directory, name);
  }

  /** See {@link ObjectStores}. */
  public boolean isObjectStore() {
    return isObjectStore;
  }

  /** Creates a file. Its name is new: it has the writer's random id, and a number. */
  public FSDataOutputStream create(String name) throws IOException {
    if (!isObjectStore) {
      return fs.create(path(name), false);
    }
    // Whether the name is taken would cost S3A two requests, of which it leaves out one or both like this.
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path(name));
    return builder.recursive().overwrite(true).opt(CREATE_UNCHECKED, "true").build();
  }

  /**
   * Closes a new file that becomes visible with that, and makes sure that it has: S3A's {@code close()} and WASB's may
   * return from an interrupt as if the file were there.
   *
   * @param length of all that was written to it
   */
  public void close(FSDataOutputStream out, String name, long length) throws IOException {
    out.close();
    if (isObjectStore && Thread.interrupted()) {
      try {
        if (fs.getFileStatus(path(name)).getLen() != length) {
          throw new IOException(path(name) + " has another length than was written");
        }
      } catch (IOException e) {
        throw (IOException) new InterruptedIOException("Interrupted while " + path(name) + " was closed").initCause(e);
      } finally {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Waits until the names of new files are on a local disk. Other file systems keep a file's name with the file. */
  public void keepNames() throws IOException {
    keepNames(directory);
  }

  private void keepNames(Path of) throws IOException {
    if (fs instanceof RawLocalFileSystem local) {
      try (FileChannel names = FileChannel.open(local.pathToFile(of).toPath(), StandardOpenOption.READ)) {
        names.force(true);
      }
    }
  }

  /**
   * Whether groups of this file become durable by hflush. Else each group is a file, which becomes so when it is
   * closed.
   *
   * <p>That a stream says so does not do. What was flushed has to be durable, and whole for all who open the file from
   * then on; those who have it open have to read on; and there may be any number of flushes. A local disk and HDFS hold
   * to that. Of others nobody knows, and these do not (docs/object-stores.md):
   *
   * <ul>
   *   <li>Google's connectors say that they can hflush where {@code fs.gs.outputstream.sync.min.interval} is set, and
   *       then silently do nothing where a flush was shorter ago than that. A flush makes a new generation of the
   *       object, and whoever has the old one open is told that there is no such file.
   *   <li>ABFS flushes, but each read asks for the eTag of the open, and fails (412) once the file was flushed again. A
   *       file takes 50,000 flushes.
   *   <li>WASB has hflush where block compaction is on. It returns from an interrupt as if it had flushed.
   * </ul>
   */
  public boolean canFlush(FSDataOutputStream out) {
    // What is mounted into a viewfs is not seen by its file system, but by its streams.
    boolean keepsItsWord = !isObjectStore || out instanceof HdfsDataOutputStream;
    return keepsItsWord && out.hasCapability("hflush");
  }

  /**
   * What is in the directory.
   *
   * @param files the merged files
   * @param markers the relocation markers: by name, when each was made or renewed
   * @param pins of forks, and of the checkpoint itself
   * @param mayBePaged whether the file system may have listed the directory page by page
   */
  public record Listing(List<FileStatus> files, Map<String, Long> markers, List<FileStatus> pins, boolean mayBePaged) {

    /** Adds what an earlier listing has shown. Files and markers that have gone since count as there. */
    private Listing after(Listing earlier) {
      Map<String, FileStatus> all = new LinkedHashMap<>();
      earlier.files.forEach(status -> all.put(status.getPath().getName(), status));
      files.forEach(status -> all.put(status.getPath().getName(), status));
      Map<String, Long> allMarkers = new HashMap<>(earlier.markers);
      allMarkers.putAll(markers);
      return new Listing(List.copyOf(all.values()), allMarkers, pins, mayBePaged);
    }
  }

  /**
   * Lists the directory so that the result is complete. A file system lists a large directory page by page. What is
   * copied to a new file on a page that was read already, and unlinked from a page that is still to come, is on
   * neither. To be missing from two listings, one after the other, it would have to be moved like this twice
   * (docs/guarantees.md).
   */
  public Listing listAll() throws IOException {
    Listing first = list();
    return first.mayBePaged() ? list().after(first) : first;
  }

  /**
   * Lists the directory once. The result is empty where the directory does not exist.
   *
   * @throws StateStoreFilesException PSS_EXPORTED, where stock Spark may have gone on after an export: what is in the
   *     merged files would win over newer plain ones
   */
  public Listing list() throws IOException {
    Listing listing;
    boolean refers = false;
    try {
      FileStatus[] listed = fs.listStatus(directory);
      // Pages count files that are not ours, too.
      listing = new Listing(new ArrayList<>(), new HashMap<>(), new ArrayList<>(), listed.length >= PAGE);
      for (FileStatus status : listed) {
        String name = status.getPath().getName();
        String ending = status.isFile() ? PathRules.ending(name) : "";
        refers |= ending.equals(OWN_PIN_SUFFIX) || ending.equals(ORIGIN_SUFFIX);
        if (ending.equals(SUFFIX) || ending.equals(INDEX_SUFFIX)) {
          listing.files.add(status);
        } else if (ending.equals(RELOCATING_SUFFIX)) {
          listing.markers.put(name, status.getModificationTime());
        } else if (EXPORT_SUFFIXES.contains(ending)) {
          throw new StateStoreFilesException(
              StateStoreFilesException.Id.PSS_EXPORTED,
              "The state of "
                  + stateDirectory.getParent()
                  + " was written back as plain files, or is about to be ("
                  + name
                  + " says so), and its merged files do not count any more. Go on with stock Spark. To merge "
                  + "again, either go back to the merged files (pyspark-statestore convert --to merged) or drop them "
                  + "(pyspark-statestore drop-merged).");
        } else if (ending.equals(PIN_SUFFIX) || ending.equals(OWN_PIN_SUFFIX)) {
          listing.pins.add(status);
        }
      }
    } catch (FileNotFoundException e) {
      return new Listing(List.of(), Map.of(), List.of(), false);
    } catch (FSError e) {
      throw new IOException(e);
    }
    restsOnReferences = refers;
    if (isObjectStore) {
      shown = listing.files.stream().collect(Collectors.toMap(file -> file.getPath().getName(), file -> file));
    }
    return listing;
  }

  /**
   * Lists the pins so that none is missed that is replaced meanwhile. The new one's name comes later, so that a listing
   * in the order of names has one of both. A local disk has no order: a listing may pass the new one's place before it
   * is there, and come to the old one's when that is gone. It would have to be replaced twice to be in neither of two.
   */
  public List<FileStatus> listPins() throws IOException {
    List<FileStatus> first = list().pins();
    if (!fs.getUri().getScheme().equals("file")) {
      return first;
    }
    Map<String, FileStatus> all = new LinkedHashMap<>();
    first.forEach(status -> all.put(status.getPath().getName(), status));
    list().pins().forEach(status -> all.put(status.getPath().getName(), status));
    return List.copyOf(all.values());
  }

  /** See {@link #restsOnReferences}: then the beginning of a header may be what is left of a reference file. */
  public boolean restsOnReferences() {
    return restsOnReferences;
  }

  /**
   * Whether stock Spark has committed state here. Each of its batches writes files for every partition, so it is enough
   * to look at partition 0 of each operator. What a batch left that never ended is not needed.
   */
  public boolean hasPlainState() throws IOException {
    for (FileStatus operator : listOrNone(stateDirectory)) {
      if (operator.isDirectory()
          && isNumber(operator.getPath().getName())
          && holdsFiles(new Path(operator.getPath(), "0"), true)) {
        return true;
      }
    }
    return false;
  }

  private boolean holdsFiles(Path directory, boolean storesBelow) throws IOException {
    for (FileStatus child : listOrNone(directory)) {
      boolean metadata = child.getPath().getName().startsWith("_");
      if (child.isFile() || storesBelow && !metadata && holdsFiles(child.getPath(), false)) {
        return true;
      }
    }
    return false;
  }

  private FileStatus[] listOrNone(Path path) throws IOException {
    try {
      return fs.listStatus(path);
    } catch (FileNotFoundException e) {
      return new FileStatus[0];
    }
  }

  private static boolean isNumber(String name) {
    return !name.isEmpty() && name.chars().allMatch(c -> c >= '0' && c <= '9');
  }

  FSDataInputStream open(String name) throws IOException {
    return fs.open(path(name));
  }

  /** The files of ours in a directory with merged files that end like this; none where it does not exist. */
  public List<FileStatus> ending(Path of, String suffix) throws IOException {
    List<FileStatus> found = new ArrayList<>();
    for (FileStatus status : listOrNone(of)) {
      if (status.isFile() && PathRules.ending(status.getPath().getName()).equals(suffix)) {
        found.add(status);
      }
    }
    return found;
  }

  /**
   * What runs of the query have left in the directory.
   *
   * @param names of the files {@code *.running} and {@code *.ended}
   * @param isExported whether the merged files count no more
   */
  public record OfRuns(List<String> names, boolean isExported) {}

  /**
   * Lists what runs of the query have left in the directory: while they go on, and when they ended.
   *
   * @throws FileNotFoundException if there is no directory
   */
  public OfRuns ofRuns() throws IOException {
    List<String> found = new ArrayList<>();
    boolean isExported = false;
    for (FileStatus status : fs.listStatus(directory)) {
      String ending = status.isFile() ? PathRules.ending(status.getPath().getName()) : "";
      if (ending.equals(RUNNING_SUFFIX) || ending.equals(ENDED_SUFFIX)) {
        found.add(status.getPath().getName());
      }
      isExported |= EXPORT_SUFFIXES.contains(ending);
    }
    return new OfRuns(found, isExported);
  }

  /** Reads a small file, which is as long as it was listed. */
  public byte[] read(String name, long length) throws IOException {
    byte[] bytes = new byte[Math.toIntExact(length)];
    try (FSDataInputStream in = open(name)) {
      in.readFully(0, bytes);
    }
    return bytes;
  }

  /** Writes a small new file, which is durable when this returns. There is none if that fails, as far as possible. */
  public void write(String name, byte[] bytes) throws IOException {
    try {
      FSDataOutputStream out = create(name);
      try {
        out.write(bytes);
        if (out.hasCapability("hsync")) {
          out.hsync();
        }
      } catch (IOException | RuntimeException | Error e) {
        try (out) {
          throw e;
        }
      }
      close(out, name, bytes.length);
      keepNames(path(name).getParent());
    } catch (IOException | RuntimeException | Error e) {
      try {
        delete(name);
      } catch (IOException | RuntimeException again) {
        e.addSuppressed(again);
      }
      if (e instanceof FSError) {
        throw new IOException(e);
      }
      throw e;
    }
  }

  /**
   * Opens a merged file that its writer, dead or alive, may not have closed.
   *
   * @param wholeLength its length where it never changes and was listed with that; else -1
   */
  public FSDataInputStream openUnclosed(String name, boolean isClosed, long closedAfterMs, long wholeLength)
      throws IOException {
    if (!isObjectStore) {
      return Leases.open(fs, path(name), isClosed, closedAfterMs);
    }
    FutureDataInputStreamBuilder builder =
        fs.openFile(path(name))
            .opt(READ_POLICY, "random")
            .opt(READ_POLICY_OF_OLD_S3A, "random")
            .opt(READ_UNBUFFERED, "true");
    if (wholeLength >= 0) {
      // With either, a store need not be asked how long the file is. S3A 3.3 takes the status only.
      builder.opt(WHOLE_LENGTH, Long.toString(wholeLength));
      FileStatus known = shown.get(name);
      if (known != null && known.getLen() == wholeLength) {
        builder.withFileStatus(known);
      }
    }
    return FutureIO.awaitFuture(builder.build());
  }

  /** Has a file closed whose stream may have failed to close it. */
  public void release(String name) {
    Leases.release(fs, path(name));
  }

  /** Makes a new empty file. */
  public void createEmpty(String name) throws IOException {
    createEmpty(name, false);
  }

  /** Makes an empty file anew, so that its modification time is now. */
  public void renew(String name) throws IOException {
    createEmpty(name, true);
  }

  private void createEmpty(String name, boolean overwrite) throws IOException {
    try {
      close(overwrite ? fs.create(path(name), true) : create(name), name, 0);
    } catch (FSError e) {
      throw new IOException(e);
    }
  }

  /** Deletes a file. It is no failure if the file is gone already. */
  public void delete(String name) throws IOException {
    try {
      if (!fs.delete(path(name), false) && fs.exists(path(name))) {
        throw new IOException("The file system did not delete " + path(name) + " and did not say why");
      }
    } catch (FSError e) {
      throw new IOException(e);
    }
  }

  /** How many files {@link #deleteAll} deletes with one request. */
  public int deletedAtOnce() {
    return bulk().pageSize();
  }

  /**
   * Deletes files, at most {@link #deletedAtOnce} of them.
   *
   * @return the files that are still there, and why
   */
  public Map<String, Exception> deleteAll(List<String> names) {
    Map<String, Exception> failed = new HashMap<>();
    if (deletedAtOnce() > 1 && !names.isEmpty()) {
      bulk().delete(names.stream().map(this::path).toList()).forEach((file, why) -> failed.put(file.getName(), why));
      return failed;
    }
    for (String name : names) {
      try {
        delete(name);
      } catch (IOException | RuntimeException e) {
        failed.put(name, e);
      }
    }
    return failed;
  }

  private BulkDeletion bulk() {
    BulkDeletion made = bulk;
    if (made == null) {
      made = BulkDeletion.of(fs, directory);
      bulk = made;
    }
    return made;
  }

  public boolean exists(String name) throws IOException {
    return fs.exists(path(name));
  }

  /** Returns how far a newly opened stream reaches. It asks in steps, because each answer is an int. */
  private static long visibleLength(FSDataInputStream in) throws IOException {
    long end = 0;
    int more = in.available();
    while (more == Integer.MAX_VALUE) {
      end += more;
      in.seek(end);
      more = in.available();
    }
    return end + more;
  }

  /** Makes an open merged file a source of ranges; {@code statusLength} may be less than what was flushed. */
  public static RangeSource ranges(String name, FSDataInputStream in, long statusLength) throws IOException {
    // HDFS lists an open file with the length of its first flush. A stream that is opened after a flush sees all of it.
    long visible = Math.max(statusLength, visibleLength(in));
    return new RangeSource() {
      @Override
      public String name() {
        return name;
      }

      @Override
      public long length() {
        return visible;
      }

      @Override
      public void readFully(long position, byte[] buffer, int offset, int length) throws IOException {
        in.readFully(position, buffer, offset, length);
      }
    };
  }
}
