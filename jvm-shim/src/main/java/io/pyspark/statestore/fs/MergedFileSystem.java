package io.pyspark.statestore.fs;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import io.pyspark.statestore.log.Segment;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.file.Files;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * {@code merged+<scheme>}: another file system in which the files of Spark's state stores are segments of merged files.
 * Everything that is not state goes to the file system below, unchanged.
 */
public final class MergedFileSystem extends FileSystem {
  /** Where Spark puts the run's id, {@code StreamExecution.RUN_ID_KEY}. */
  public static final String RUN_ID = "sql.streaming.runId";

  private URI uri;
  private FileSystem real;
  private Path workingDirectory;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    real = Schemes.realFileSystem(name, conf);
    uri = URI.create(Schemes.PREFIX + real.getUri());
    workingDirectory = Schemes.toMerged(real.makeQualified(real.getWorkingDirectory()));
    setConf(conf);
  }

  @Override
  public String getScheme() {
    return uri.getScheme();
  }

  @Override
  public URI getUri() {
    return uri;
  }

  /** The file system below. */
  public FileSystem real() {
    return real;
  }

  // ---- finding the log

  /** The state path behind a name of this file system, or null. */
  private StateView state(Path path) throws IOException {
    Path realPath = toReal(path);
    StatePath state = StatePath.ofDirectoryToo(realPath);
    return state == null ? null : view(realPath, state);
  }

  private StateView file(Path path) throws IOException {
    Path realPath = toReal(path);
    StatePath state = StatePath.of(realPath);
    return state == null || !state.isFile() ? null : view(realPath, state);
  }

  private StateView view(Path realPath, StatePath state) throws IOException {
    return new StateView(log(state.stateDirectory()), real, realPath, state, Schemes::toMerged);
  }

  /** A view of a state path for a checkpoint file manager. */
  StateView view(MergedLog log, Path realPath, StatePath state, boolean mergedNames) {
    return new StateView(log, real, realPath, state, mergedNames ? Schemes::toMerged : p -> p);
  }

  private MergedLog log(Path stateDirectory) throws IOException {
    MergedLog open = MergedLogs.open(stateDirectory);
    return open != null ? open : log(stateDirectory, checkedOptions(getConf()), getConf().get(RUN_ID, ""));
  }

  /** The log of a checkpoint, working with {@code options} from now on. */
  MergedLog log(Path stateDirectory, Options options, String queryRunId) throws IOException {
    // Each run looks once, whatever it asks: between runs a checkpoint may be deleted or put back from a copy.
    Object run = queryRunId.isEmpty() ? null : new QueryRun(queryRunId);
    Object[] occasions = Stream.of(run, Freshness.occasion()).filter(Objects::nonNull).toArray();
    MergedLog log = MergedLogs.of(
        real,
        stateDirectory,
        options,
        () -> ProcessIdentity.headerFields(queryRunId),
        ProcessIdentity::localDirectory,
        ProcessIdentity::taskSlots,
        occasions);
    if (run != null) {
      log.refreshFor(run);
    }
    return log;
  }

  private record QueryRun(String id) {}

  /** Reads the options and refuses to work with another Spark or another Python package than this jar's. */
  public static Options checkedOptions(Configuration conf) throws IOException {
    Options options = Options.from(conf);
    ShimInfo.checkCompatible(options, org.apache.spark.package$.MODULE$.SPARK_VERSION());
    return options;
  }

  private Path toReal(Path path) {
    return Schemes.toReal(makeQualified(path));
  }

  private StateView fresh(Path path) throws IOException {
    StateView view = state(path);
    if (view != null) {
      Freshness.ensure(log(StatePath.ofDirectoryToo(toReal(path)).stateDirectory()));
    }
    return view;
  }

  // ---- state, or the file system below

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    StateView view = fresh(path);
    return view == null ? real.open(toReal(path), bufferSize) : view.open();
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    StateView view = file(path);
    return view == null
        ? real.create(toReal(path), permission, overwrite, bufferSize, replication, blockSize, progress)
        : new FSDataOutputStream(view.create(overwrite), statistics);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
    if (file(path) != null) {
      throw new UnsupportedOperationException("State files are written once: " + path + " cannot be appended to");
    }
    return real.append(toReal(path), bufferSize, progress);
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    StateView source = file(from);
    StateView target = file(to);
    if (source == null && target == null) {
      boolean renamed = real.rename(toReal(from), toReal(to));
      if (renamed) {
        MergedLogs.forgetBelow(toReal(from));
      }
      return renamed;
    }
    if (target != null && target.fileExists()) {
      return false;
    }
    try (FSDataInputStream in = open(from); FSDataOutputStream out = create(to, false)) {
      in.transferTo(out);
    } catch (FileNotFoundException e) {
      return false;
    }
    return delete(from, false);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    Path realPath = toReal(path);
    StatePath state = StatePath.ofDirectoryToo(realPath);
    if (state == null) {
      boolean deleted = real.delete(realPath, recursive);
      if (deleted) {
        MergedLogs.forgetBelow(realPath);
      }
      return deleted;
    }
    StateView view = fresh(path);
    if (state.isFile()) {
      boolean existed = view.fileExists();
      view.deleteFile();
      return existed;
    }
    return view.deleteDirectory(recursive);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    StateView view = fresh(path);
    if (view != null) {
      return view.list();
    }
    FileStatus[] found = real.listStatus(toReal(path));
    for (FileStatus status : found) {
      status.setPath(Schemes.toMerged(status.getPath()));
    }
    return found;
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    StateView view = fresh(path);
    if (view != null) {
      return view.status();
    }
    FileStatus status = real.getFileStatus(toReal(path));
    status.setPath(Schemes.toMerged(status.getPath()));
    return status;
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    StateView view = state(path);
    return view == null ? real.mkdirs(toReal(path), permission) : view.mkdirs();
  }

  @Override
  public void copyFromLocalFile(boolean deleteSource, boolean overwrite, Path source, Path target)
      throws IOException {
    Path realTarget = toReal(target);
    StatePath state = StatePath.of(realTarget);
    if (state == null || !state.isFile()) {
      real.copyFromLocalFile(deleteSource, overwrite, source, realTarget);
      return;
    }
    java.nio.file.Path local = java.nio.file.Path.of(source.toUri().getPath());
    if (!log(state.stateDirectory()).stage(state.relative(), local)) {
      try (FSDataOutputStream out = create(target, overwrite)) {
        Files.copy(local, out);
      }
    }
    if (deleteSource) {
      Files.delete(local);
    }
  }

  @Override
  public void copyToLocalFile(boolean deleteSource, Path source, Path target, boolean useRawLocal)
      throws IOException {
    StateView view = file(source);
    Segment segment = view == null ? null : view.segment();
    if (segment == null) {
      if (view == null || StatePath.of(toReal(source)) == null) {
        real.copyToLocalFile(deleteSource, toReal(source), target, useRawLocal);
      } else {
        copyPlain(deleteSource, source, target, useRawLocal);
      }
      return;
    }
    java.nio.file.Path local = java.nio.file.Path.of(target.toUri().getPath());
    boolean whole = false;
    try (OutputStream out = Files.newOutputStream(local)) {
      log(StatePath.of(toReal(source)).stateDirectory()).copy(segment, out);
      whole = true;
    } finally {
      if (!whole) {
        Files.deleteIfExists(local);
      }
    }
    if (deleteSource) {
      delete(source, false);
    }
  }

  private void copyPlain(boolean deleteSource, Path source, Path target, boolean useRawLocal) throws IOException {
    try {
      super.copyToLocalFile(deleteSource, source, target, useRawLocal);
    } catch (FileNotFoundException e) {
      Path realSource = toReal(source);
      StatePath state = StatePath.of(realSource);
      throw log(state.stateDirectory()).missing(state.relative());
    }
  }

  // ---- the file system below

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    if (file(path) == null) {
      real.setPermission(toReal(path), permission);
    }
  }

  @Override
  public void setOwner(Path path, String user, String group) throws IOException {
    if (file(path) == null) {
      real.setOwner(toReal(path), user, group);
    }
  }

  @Override
  public void setTimes(Path path, long modified, long accessed) throws IOException {
    if (file(path) == null) {
      real.setTimes(toReal(path), modified, accessed);
    }
  }

  @Override
  public void setWorkingDirectory(Path path) {
    workingDirectory = makeQualified(path);
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public Path getHomeDirectory() {
    return Schemes.toMerged(real.makeQualified(real.getHomeDirectory()));
  }

  /** Delegation tokens are those of the file system below: this has none of its own. */
  @Override
  public FileSystem[] getChildFileSystems() {
    return new FileSystem[] {real};
  }

  @Override
  public String getCanonicalServiceName() {
    return null;
  }

  @Override
  public long getDefaultBlockSize(Path path) {
    return real.getDefaultBlockSize(toReal(path));
  }

  @Override
  public short getDefaultReplication(Path path) {
    return real.getDefaultReplication(toReal(path));
  }
}
