package io.pyspark.statestore.fs;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexTransport;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import io.pyspark.statestore.metrics.StoreFigures;
import io.pyspark.statestore.tables.EarlyFiles;
import io.pyspark.statestore.tables.LazyFiles;
import io.pyspark.statestore.tables.PartialFiles;
import java.io.FileNotFoundException;
import java.io.IOException;
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
 * {@code merged+<scheme>}: a file system over another one, in which the files of Spark's state stores are segments of
 * merged files. RocksDB copies its SSTs through it. All other files go to the file system below, unchanged.
 */
public final class MergedFileSystem extends FileSystem {
  private URI uri;
  private FileSystem real;
  private Path workingDirectory;

  /** The merged file system of a merged path. */
  public static MergedFileSystem of(Path merged, Configuration conf) throws IOException {
    URI uri = merged.toUri();
    return (MergedFileSystem) FileSystem.get(uri, withClasses(conf, uri.getScheme()));
  }

  /**
   * A configuration in which Hadoop finds the merged file system. The class loader of {@code conf} does not know a jar
   * that was added to a running session.
   */
  public static Configuration withClasses(Configuration conf, String scheme) {
    String key = "fs." + scheme + ".impl";
    String name = MergedFileSystem.class.getName();
    if (name.equals(conf.get(key)) && conf.getClassByNameOrNull(name) == MergedFileSystem.class) {
      return conf;
    }
    Configuration copy = new Configuration(conf);
    copy.setClassLoader(MergedFileSystem.class.getClassLoader());
    copy.set(key, name);
    return copy;
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    ShimInfo.checkSpark();
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

  // ---- from a path to its view

  private Path toReal(Path path) {
    return Schemes.toReal(makeQualified(path));
  }

  /** The view of a state path, or null for what goes to the file system below. */
  private StateView state(Path realPath) throws IOException {
    StatePath state = StatePath.ofOperatorToo(realPath);
    return state == null ? null : view(state);
  }

  /** As {@link #state}, for files only. */
  private StateView file(Path realPath) throws IOException {
    StatePath state = StatePath.of(realPath);
    return state == null || !state.isFile() ? null : view(state);
  }

  /** As {@link #state}, and as new as the current thread needs it. */
  private StateView fresh(Path realPath) throws IOException {
    StateView view = state(realPath);
    if (view != null) {
      view.ensureFresh();
    }
    return view;
  }

  private StateView view(StatePath state) throws IOException {
    MergedLog open = MergedLogs.open(state.stateDirectory());
    if (open == null) {
      return view(state, checkedOptions(getConf()), getConf(), true);
    }
    open.used();
    return new StateView(open, real, state, "", Schemes::toMerged);
  }

  /**
   * The view of a state path, whose log works with {@code options} from now on.
   *
   * @param conf of the query that asks
   * @param mergedNames whether what it lists has names of this file system rather than real ones
   */
  StateView view(StatePath state, Options options, Configuration conf, boolean mergedNames) throws IOException {
    String queryRunId = SparkQuery.runIdIn(conf);
    IndexTransport service = SparkTransport.of(conf, options);
    FreshnessKey key = Freshness.key();
    MergedLog log =
        MergedLogs.of(
            real,
            state.stateDirectory(),
            options,
            ProcessIdentity.facts(queryRunId, conf),
            service,
            queryRunId,
            state.relative(),
            Stream.of(key).filter(Objects::nonNull).toArray(FreshnessKey[]::new));
    // Where all tasks of the query run in this process, its log is the one behind the service.
    if (!queryRunId.isEmpty() && service == null && options.indexService() && ProcessIdentity.runsAllTasks()) {
      log.serveQueries();
    }
    return new StateView(log, real, state, queryRunId, mergedNames ? Schemes::toMerged : path -> path);
  }

  /**
   * Of a store that is about to be opened: what is to know its SSTs as soon as RocksDB has made them.
   *
   * @param store its directory, with a name of this file system; qualified
   * @return null where that is no store's
   */
  public static EarlyFiles earlyFiles(Path store) {
    StatePath state = StatePath.of(Schemes.toReal(store));
    return state == null || state.isFile()
        ? null
        : new EarlyFiles(state.stateDirectory(), state.relative(), MergedLogs::deleteEarly);
  }

  /**
   * The files of a store whose state is in the checkpoint, and of which the local disk has no more than there is room
   * for.
   *
   * @param store its directory, with a name of this file system; qualified
   * @param limit bytes that all stores of this process may have
   * @return null where that is no store's
   */
  public static LazyFiles cachedFiles(Path store, long limit) {
    StatePath state = StatePath.of(Schemes.toReal(store));
    return state == null || state.isFile()
        ? null
        : LazyFiles.cached(new Path(state.stateDirectory(), state.relative()), limit);
  }

  /**
   * Takes what this process has done for a store since this was last called.
   *
   * @param store its directory, with a name of this file system or its real one; qualified
   */
  public static StoreFigures takeFiguresOf(Path store) {
    StatePath state = StatePath.of(Schemes.toReal(store));
    MergedLog log = logOf(state);
    return log == null ? StoreFigures.NONE : log.metrics().takeOf(state.relative());
  }

  private static MergedLog logOf(StatePath state) {
    return state == null ? null : MergedLogs.open(state.stateDirectory());
  }

  /** Counts what was fetched of a store before it was read. */
  public static void lookedAhead(Path store, StoreFigures.LookAhead done) {
    MergedLog log = logOf(StatePath.of(Schemes.toReal(store)));
    if (log != null) {
      log.metrics().lookedAhead(done);
    }
  }

  /** Counts what a heap store has moved to the local disk, and read there. */
  public static void spilled(Path store, long writtenBytes, long reads) {
    MergedLog log = logOf(StatePath.of(Schemes.toReal(store)));
    if (log != null) {
      log.metrics().spilled(writtenBytes, reads);
    }
  }

  /** Reads the options, and refuses to work with another Spark or another Python package than this jar's. */
  public static Options checkedOptions(Configuration conf) throws IOException {
    ShimInfo.checkSpark();
    Options options = Options.from(conf);
    options.checkPackage();
    return options;
  }

  // ---- state, or the file system below

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    Path realPath = toReal(path);
    StateView view = fresh(realPath);
    return view == null ? real.open(realPath, bufferSize) : view.open();
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
    Path realPath = toReal(path);
    StateView view = file(realPath);
    return view == null
        ? real.create(realPath, permission, overwrite, bufferSize, replication, blockSize, progress)
        : create(view, overwrite);
  }

  private FSDataOutputStream create(StateView view, boolean overwrite) throws IOException {
    return new FSDataOutputStream(view.create(overwrite), statistics);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
    Path realPath = toReal(path);
    if (file(realPath) != null) {
      throw new UnsupportedOperationException("State files are written once: " + path + " cannot be appended to");
    }
    return real.append(realPath, bufferSize, progress);
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    Path realFrom = toReal(from);
    StateView source = file(realFrom);
    Path realTo = toReal(to);
    StateView target = file(realTo);
    if (source == null && target == null) {
      boolean renamed = real.rename(realFrom, realTo);
      if (renamed) {
        MergedLogs.forgetBelow(realFrom);
      }
      return renamed;
    }
    if (target != null && target.fileExists()) {
      return false;
    }
    try (FSDataInputStream in = open(from);
        FSDataOutputStream out = create(to, false)) {
      in.transferTo(out);
    } catch (FileNotFoundException e) {
      return false;
    }
    return delete(from, false);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    Path realPath = toReal(path);
    StateView view = fresh(realPath);
    if (view == null) {
      boolean deleted = real.delete(realPath, recursive);
      if (deleted) {
        MergedLogs.forgetBelow(realPath);
      }
      return deleted;
    }
    if (view.isFile()) {
      boolean existed = view.fileExists();
      view.deleteFile();
      return existed;
    }
    return view.deleteDirectory(recursive);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    Path realPath = toReal(path);
    StateView view = fresh(realPath);
    if (view != null) {
      return view.list();
    }
    FileStatus[] found = real.listStatus(realPath);
    for (FileStatus status : found) {
      status.setPath(Schemes.toMerged(status.getPath()));
    }
    return found;
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    Path realPath = toReal(path);
    StateView view = fresh(realPath);
    if (view != null) {
      return view.status();
    }
    FileStatus status = real.getFileStatus(realPath);
    status.setPath(Schemes.toMerged(status.getPath()));
    return status;
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    Path realPath = toReal(path);
    StateView view = state(realPath);
    return view == null ? real.mkdirs(realPath, permission) : view.mkdirs();
  }

  @Override
  public void copyFromLocalFile(boolean deleteSource, boolean overwrite, Path source, Path target) throws IOException {
    Path realTarget = toReal(target);
    StateView view = file(realTarget);
    if (view == null) {
      real.copyFromLocalFile(deleteSource, overwrite, source, realTarget);
      return;
    }
    java.nio.file.Path local = java.nio.file.Path.of(source.toUri().getPath());
    if (!view.stage(local)) {
      PartialFiles.Pin whole = PartialFiles.pin(local);
      try (FSDataOutputStream out = create(view, overwrite)) {
        Files.copy(local, out);
      } finally {
        whole.close();
      }
    }
    if (deleteSource) {
      Files.delete(local);
    }
  }

  @Override
  public void copyToLocalFile(boolean deleteSource, Path source, Path target, boolean useRawLocal) throws IOException {
    Path realSource = toReal(source);
    StateView view = file(realSource);
    if (view == null) {
      real.copyToLocalFile(deleteSource, realSource, target, useRawLocal);
    } else if (!view.copyTo(java.nio.file.Path.of(target.toUri().getPath()))) {
      copyPlain(view, deleteSource, source, target, useRawLocal);
    } else if (deleteSource) {
      delete(source, false);
    }
  }

  private void copyPlain(StateView view, boolean deleteSource, Path source, Path target, boolean useRawLocal)
      throws IOException {
    try {
      super.copyToLocalFile(deleteSource, source, target, useRawLocal);
    } catch (FileNotFoundException e) {
      throw view.missing();
    }
  }

  // ---- the file system below

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    Path realPath = toReal(path);
    if (file(realPath) == null) {
      real.setPermission(realPath, permission);
    }
  }

  @Override
  public void setOwner(Path path, String user, String group) throws IOException {
    Path realPath = toReal(path);
    if (file(realPath) == null) {
      real.setOwner(realPath, user, group);
    }
  }

  @Override
  public void setTimes(Path path, long modified, long accessed) throws IOException {
    Path realPath = toReal(path);
    if (file(realPath) == null) {
      real.setTimes(realPath, modified, accessed);
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

  /** Has Spark ask the file system below for delegation tokens: this one has none of its own. */
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
