package io.pyspark.statestore.fs;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.StateFileNotFoundException;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.Unchecked;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import io.pyspark.statestore.tables.OpenStores;
import io.pyspark.statestore.write.LogOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.SparkException;

/**
 * The checkpoint file manager of both doors, without the interface of Spark's, which {@code
 * MergedCheckpointFileManager} adds. The files of state stores become segments, so an atomic create needs no temporary
 * file and no rename. All other files, and all files of plain locations, go to the manager that Spark would have made.
 */
public final class MergedFiles {
  static final String CLASS_KEY = "spark.sql.streaming.checkpointFileManagerClass";

  /** The key that the providers set: the state files of a store at a plain location are merged, too. */
  public static final String MERGE_PLAIN_PATHS = "io.pyspark.statestore.mergePlainPaths";

  /** Null where nothing is merged. */
  private final Options options;

  private final boolean mergedNames;

  /** Whether Spark reads its own class for RocksDB in the offset log, whatever is there. */
  private final boolean showsSparksProviders;

  private final FileManager.Maker sparks;

  /** Manages what is not state, under real names. Made when it is first needed: a store needs none. */
  private FileManager plain;

  /** Null where nothing is merged. */
  private final MergedFileSystem fs;

  private final Path location;
  private final Configuration conf;
  private final long madeNanos = System.nanoTime();

  /** The key of the last question that a task asked; Spark opens files for that task from other threads. */
  private volatile FreshnessKey lastKey;

  /**
   * @param sparks makes the manager of what is not state
   */
  MergedFiles(Path path, Configuration given, FileManager.Maker sparks) throws IOException {
    this.conf = SparkQuery.withRunId(given);
    this.mergedNames = Schemes.isMerged(path);
    this.showsSparksProviders = conf.getBoolean(SparksProviders.KEY, false);
    boolean merges = mergedNames || conf.getBoolean(MERGE_PLAIN_PATHS, false);
    this.options = merges ? MergedFileSystem.checkedOptions(conf) : null;
    this.sparks = sparks;
    Path real = Schemes.toReal(path);
    Path qualified = merges && !mergedNames ? real.getFileSystem(conf).makeQualified(real) : path;
    this.fs = merges ? MergedFileSystem.of(Schemes.toMerged(qualified), conf) : null;
    this.location = path;
    IndexEndpoint.managerMade(real.getFileSystem(conf).makeQualified(real), conf);
    StatePath store = statePath(path);
    if (store != null) {
      OpenStores.opened(this, store.stateDirectory(), store.relative());
    }
  }

  private synchronized FileManager plain() {
    if (plain == null) {
      plain = makePlain(Schemes.toReal(location), conf.get(Options.PREFIX + "fileManagerClass", ""));
    }
    return plain;
  }

  /** A user's own class is left alone: what its calls do, and what they cost, nobody knows. */
  private FileManager makePlain(Path real, String userClass) {
    FileManager made = sparks.make(real, withoutThis(conf, userClass));
    return userClass.isEmpty() ? io(() -> SparksLog.over(made, real, conf)) : made;
  }

  /** A configuration in which Spark makes the manager that it would have made without this class. */
  private static Configuration withoutThis(Configuration conf, String userClass) {
    Configuration copy = new Configuration(conf);
    if (userClass.isEmpty()) {
      copy.unset(CLASS_KEY);
    } else {
      copy.set(CLASS_KEY, userClass);
    }
    return copy;
  }

  /** The view of a state path; null for what {@link #plain()} manages. */
  private StateView state(Path path) throws IOException {
    StatePath state = statePath(path);
    return state == null ? null : view(state);
  }

  /** As {@link #state}, for files only. */
  private StateView file(Path path) throws IOException {
    StatePath state = statePath(path);
    return state == null || !state.isFile() ? null : view(state);
  }

  /** As {@link #state}, and as new as the current thread needs it. */
  private StateView fresh(Path path) throws IOException {
    StateView view = state(path);
    if (view != null) {
      ensureFresh(view);
    }
    return view;
  }

  private void ensureFresh(StateView view) throws IOException {
    FreshnessKey key = Freshness.key();
    if (key != null) {
      lastKey = key;
    }
    view.ensureFresh();
  }

  private StatePath statePath(Path path) {
    return fs == null ? null : StatePath.of(fs.real().makeQualified(Schemes.toReal(path)));
  }

  private StateView view(StatePath state) throws IOException {
    return fs.view(state, options, conf, mergedNames);
  }

  AtomicFile createAtomic(Path path, boolean overwriteIfPossible) {
    return io(
        () -> {
          StateView view = file(path);
          if (view != null) {
            return new NewSegment(view.create(overwriteIfPossible));
          }
          Path real = Schemes.toReal(path);
          String own = showsSparksProviders ? SparksProviders.ownFor(real, conf) : "";
          AtomicFile made = SparksProviders.written(plain().createAtomic(real, overwriteIfPossible), own);
          IndexEndpoint.written(fs == null ? real : fs.real().makeQualified(real), conf);
          return RunEnds.noting(real, BatchEnd.of(real, made, conf, madeNanos), conf);
        });
  }

  FSDataInputStream open(Path path) {
    return io(
        () -> {
          StateView view = file(path);
          if (view == null) {
            Path real = Schemes.toReal(path);
            FSDataInputStream opened = plain().open(real);
            return showsSparksProviders ? SparksProviders.shown(real, opened) : opened;
          }
          // Every load of a RocksDB store asks for its versions first; one of a heap store opens files straight away.
          boolean askedBefore = path.getName().contains(".changelog") || path.getName().contains(".zip");
          view.ensureFresh(askedBefore ? lastKey : null);
          try {
            return view.open();
          } catch (StateFileNotFoundException e) {
            throw inSparksWords(path, e);
          }
        });
  }

  /** For a file that a load always needs, Spark's own error, with our message added; else ours. */
  private static Exception inSparksWords(Path path, StateFileNotFoundException missing) {
    Throwable sparks = null;
    if (path.getName().endsWith(".changelog")) {
      sparks = SparkErrors.noChangelog(path, missing);
    } else if (path.getName().endsWith(".delta")) {
      sparks = SparkErrors.noDelta(path, missing);
    }
    return sparks instanceof SparkException spark ? missing.addedTo(spark) : missing;
  }

  FileStatus[] list(Path path, PathFilter filter) {
    return io(
        () -> {
          StateView view = fresh(path);
          FileStatus[] all = view == null ? plain().list(Schemes.toReal(path)) : view.list();
          List<FileStatus> accepted = new ArrayList<>(all.length);
          for (FileStatus status : all) {
            if (mergedNames) {
              status.setPath(Schemes.toMerged(status.getPath()));
            }
            if (filter.accept(status.getPath())) {
              accepted.add(status);
            }
          }
          return accepted.toArray(FileStatus[]::new);
        });
  }

  void mkdirs(Path path) {
    io(
        () -> {
          StatePath state = statePath(path);
          // Spark makes a heap store's directory while all its loads wait, so the log is not opened for that.
          MergedLog open = state == null ? null : MergedLogs.open(state.stateDirectory());
          if (state == null) {
            plain().mkdirs(Schemes.toReal(path));
          } else if (open == null) {
            fs.real().mkdirs(state.path());
          } else {
            new StateView(open, fs.real(), state, "", named -> named).mkdirs();
          }
          return null;
        });
  }

  boolean exists(Path path) {
    return io(
        () -> {
          if (path.getName().equals("offsets") && !showsSparksProviders) {
            // This is Spark's first question to a log. An exception from the constructor would reach the user wrapped.
            DoorCheck.beforeRepartitioning(path, conf);
          }
          StateView view = fresh(path);
          return view == null ? plain().exists(Schemes.toReal(path)) : view.exists();
        });
  }

  void delete(Path path) {
    io(
        () -> {
          StateView view = state(path);
          if (view == null) {
            plain().delete(Schemes.toReal(path));
          } else if (view.isFile()) {
            view.deleteFile();
          } else {
            ensureFresh(view);
            view.deleteDirectory(true);
          }
          return null;
        });
  }

  boolean isLocal() {
    return plain().isLocal();
  }

  Path createCheckpointDirectory() {
    return io(
        () -> {
          if (fs == null) {
            DoorCheck.beforeStart(location, conf);
          } else {
            DoorCheck.beforeMergedStart(Schemes.toReal(location), conf);
          }
          Path root = Schemes.toReal(location);
          Path checkpoint = root.getFileSystem(conf).makeQualified(root);
          IndexEndpoint.runBegins(checkpoint);
          Path made;
          try {
            made = plain().createCheckpointDirectory();
          } catch (Exception e) {
            if (fs == null || !(e instanceof IOException)) {
              throw e;
            }
            throw new StateStoreFilesException(
                Id.PSS_NOT_A_CHECKPOINT,
                "The checkpoint location cannot be made or used as a directory: "
                    + e.getMessage()
                    + ". Check that it is not a file and that you may write there.",
                e);
          }
          RunEnds.begins(checkpoint, conf);
          return mergedNames ? Schemes.toMerged(made) : made;
        });
  }

  void close() {
    MergedLogs.managerClosed(this);
    synchronized (this) {
      if (plain != null) {
        plain.close();
      }
    }
  }

  /** A segment that is being written. */
  private record NewSegment(LogOutputStream out) implements AtomicFile {
    @Override
    public void close() throws IOException {
      out.close();
    }

    @Override
    public void cancel() {
      out.cancel();
    }
  }

  private interface Io<T> {
    T run() throws Exception;
  }

  private static <T> T io(Io<T> action) {
    try {
      return action.run();
    } catch (Exception e) {
      throw Unchecked.raise(e);
    }
  }
}
