package io.pyspark.statestore.spark;

import io.pyspark.statestore.Unchecked;
import io.pyspark.statestore.rocks.AskedRocksDB;
import io.pyspark.statestore.rocks.DiskReads;
import io.pyspark.statestore.rocks.LazyRocksDB;
import io.pyspark.statestore.rocks.ReadAhead;
import io.pyspark.statestore.rocks.TableFiles;
import io.pyspark.statestore.tables.EarlyFiles;
import io.pyspark.statestore.tables.LazyFiles;
import io.pyspark.statestore.tables.LazyLoad;
import java.io.File;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.RocksDBFileManager;
import org.apache.spark.sql.execution.streaming.state.RocksDBFileMapping;
import org.apache.spark.sql.execution.streaming.state.RocksDBImmutableFile;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Spark's RocksDB of one store, as far as Spark lets it be another one.
 *
 * <p><b>Opened with the ends of its SSTs.</b> Between the opening and the first read the open database is replaced by a
 * {@link LazyRocksDB}. Why no read comes before that: {@code loadCheckpointFromDfs} is what Spark calls before each
 * opening, and all that Spark then does with a database, also while it replays changelogs, begins with {@code
 * updateMemoryUsageIfNeeded}. Only the counting of keys does not, where a snapshot does not say how many it has; all
 * files are completed then. A test goes through the methods of Spark's class.
 *
 * <p><b>Read ahead.</b> Where reads are slow, or have to wait for what is missing, the database is asked for keys. One
 * that was opened with whole files is replaced by an {@link AskedRocksDB} then, and not before.
 *
 * <p><b>Its SSTs are uploaded as they are made.</b> RocksDB tells {@link EarlyFiles} of them. Spark makes the name that
 * an SST has in the checkpoint with {@code newDFSFileName}, when it takes a snapshot, and gets the name that the SST
 * has already. Which snapshot a name was made for Spark finds out with {@code dfsFileSuffix}.
 */
final class MergedRocksDB extends RocksDB {
  private static final Logger LOG = LoggerFactory.getLogger(MergedRocksDB.class);

  /** The open database of Spark's class; null where this Spark has no such field. */
  private static final VarHandle DB = findDatabase();

  /**
   * Where only parts of SSTs are on the disk: an SST is no larger than one part in so many of what may be there, as a
   * compaction has some twenty of them here at once; but not small either, because each is held open.
   */
  private static final long TABLES = 512;

  private static final long LEAST_TABLE = 4 << 20;

  /**
   * The first level below level 0 has so many at least, and one part in so many of what may be there: a compaction into
   * it has all of it here, and once more what it makes. The more it takes, the less is written: what fits in is not
   * merged into the next level, which is ten times as large.
   */
  private static final int TABLES_OF_LEVEL = 4;

  private static final long FIRST_LEVELS = 8;

  /** Null where files are copied whole. */
  private final LazyFiles files;

  /** Null where SSTs are uploaded with their snapshots. */
  private final EarlyFiles early;

  /** Null where nobody has to know which SSTs there are. */
  private final TableFiles listener;

  private final long compactedBytesPerSecond;

  /** Null where nothing is read ahead. */
  private final DiskReads disk;

  /** Whether the next database that is opened has holes. */
  private volatile boolean opensLazily;

  private LazyRocksDB open;

  /** All of the files, while Spark counts their rows; null mostly. */
  private LazyFiles.Hold counting;

  /** Of the open database; null where it was not asked for yet. */
  private ReadAhead ahead;

  MergedRocksDB(
      LazyFiles files,
      EarlyFiles early,
      boolean looksAhead,
      long compactedBytesPerSecond,
      String dfsRootDir,
      RocksDBConf conf,
      File localRootDir,
      Configuration hadoopConf,
      String loggingId,
      boolean useColumnFamilies,
      boolean enableStateStoreCheckpointIds,
      int partitionId,
      Option<RocksDBEventForwarder> eventForwarder,
      Option<String> uniqueId) {
    super(
        dfsRootDir,
        conf,
        localRootDir,
        hadoopConf,
        loggingId,
        useColumnFamilies,
        enableStateStoreCheckpointIds,
        partitionId,
        eventForwarder,
        uniqueId);
    this.files = files;
    this.early = early;
    this.compactedBytesPerSecond = compactedBytesPerSecond;
    listener = early == null && files == null ? null : new TableFiles(early, files);
    if (isCached()) {
      // What a compaction reads and writes has to be here at once.
      org.rocksdb.Options options = rocksDbOptions();
      long table = Math.min(options.targetFileSizeBase(), Math.max(LEAST_TABLE, files.limit() / TABLES));
      options.setTargetFileSizeBase(table);
      long level = Math.max(table * TABLES_OF_LEVEL, files.limit() / FIRST_LEVELS);
      options.setMaxBytesForLevelBase(Math.min(options.maxBytesForLevelBase(), level));
    }
    disk = looksAhead ? new DiskReads(rocksDbOptions().statistics()) : null;
    if (listener != null) {
      rocksDbOptions().setListeners(List.of(listener));
    }
  }

  private void endCounting() {
    if (counting != null) {
      counting.close();
      counting = null;
    }
  }

  private boolean isCached() {
    return files != null && files.isCached();
  }

  private static VarHandle findDatabase() {
    try {
      return MethodHandles.privateLookupIn(RocksDB.class, MethodHandles.lookup())
          .findVarHandle(RocksDB.class, "db", org.rocksdb.RocksDB.class);
    } catch (ReflectiveOperationException e) {
      LOG.warn(
          "Stores are not loaded lazily, nor read ahead: Spark's RocksDB class has no field db. What to do: leave"
              + " restore out, and report it",
          e);
      return null;
    }
  }

  /** Whether this Spark's class can have another database in the place of the one that it has opened. */
  static boolean canReplaceDatabase() {
    return DB != null;
  }

  /** Called while Spark's class is made. */
  @Override
  public RocksDBFileManager createFileManager(
      String dfsRootDir,
      File localTempDir,
      Configuration hadoopConf,
      String codecName,
      String loggingId,
      StateStoreConf storeConf) {
    return new RocksDBFileManager(
        dfsRootDir,
        localTempDir,
        hadoopConf,
        codecName,
        loggingId,
        storeConf,
        conf().fileChecksumEnabled(),
        fileChecksumThreadPoolSize()) {
      @Override
      public RocksDBCheckpointMetadata loadCheckpointFromDfs(
          long version, File localDir, RocksDBFileMapping mapping, Option<String> checkpointId) {
        if (early != null) {
          early.loading();
        }
        ahead = null;
        if (files == null) {
          return super.loadCheckpointFromDfs(version, localDir, mapping, checkpointId);
        }
        opensLazily = false;
        open = null;
        endCounting();
        files.loadBegins();
        RocksDBCheckpointMetadata metadata;
        LazyLoad load = LazyLoad.begin(files);
        try {
          metadata = super.loadCheckpointFromDfs(version, localDir, mapping, checkpointId);
        } finally {
          load.close();
        }
        loaded(localDir, metadata);
        return metadata;
      }

      @Override
      public String newDFSFileName(String localFileName, String dfsFileSuffix) {
        String name = early == null ? null : early.nameFor(localFileName, dfsFileSuffix);
        return name == null ? super.newDFSFileName(localFileName, dfsFileSuffix) : name;
      }

      @Override
      public String dfsFileSuffix(RocksDBImmutableFile file) {
        String suffix = early == null ? null : early.suffixOf(file.dfsFileName());
        return suffix == null ? super.dfsFileSuffix(file) : suffix;
      }
    };
  }

  /** A version's files are in place, and its database is about to be opened. */
  private void loaded(File localDir, RocksDBCheckpointMetadata metadata) {
    try {
      files.loaded(localDir.toPath(), localRootDir().toPath());
      if (conf().trackTotalNumberOfRows() && metadata.numKeys() < 0) {
        if (isCached()) {
          counting = files.holdAll();
        } else {
          files.awaitWhole();
        }
      }
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
    // A compaction could begin as soon as the database is open.
    opensLazily = !files.isWhole();
    rocksDbOptions().setDisableAutoCompactions(opensLazily);
  }

  /** Spark does this first, whatever it does with its database. */
  @Override
  public void updateMemoryUsageIfNeeded() {
    if (opensLazily) {
      replaceDatabase();
    }
    endCounting();
    if (open != null) {
      checkBeforeCommit();
      open.compactWhenWhole();
      open.compactIfDue();
    }
    super.updateMemoryUsageIfNeeded();
  }

  /** Fetches what will be read; null where nobody wants that. For the thread that uses the open database. */
  ReadAhead readAhead() {
    if (disk != null && ahead == null) {
      ahead = new ReadAhead(this::asked, files, disk);
    }
    return ahead;
  }

  private AskedRocksDB asked() {
    if (opensLazily) {
      replaceDatabase();
    }
    org.rocksdb.RocksDB opened = (org.rocksdb.RocksDB) DB.getVolatile(this);
    if (opened instanceof AskedRocksDB asked) {
      return asked;
    }
    AskedRocksDB asked = new AskedRocksDB(opened);
    DB.setVolatile(this, asked);
    return asked;
  }

  /**
   * Fails a commit on files that are damaged, or lost: with changelogs, Spark commits without a read or a flush, for as
   * long as it likes. A load goes on, because it puts other files in their place. What calls is asked for by its name,
   * because the arguments of {@code commit} differ between versions of Spark; a test goes through Spark's class.
   */
  private void checkBeforeCommit() {
    if (files.isDamaged() && StackWalker.getInstance().walk(all -> all.limit(3).anyMatch(MergedRocksDB::isCommit))) {
      try {
        files.check();
      } catch (IOException e) {
        throw Unchecked.raise(e);
      }
    }
  }

  private static boolean isCommit(StackWalker.StackFrame frame) {
    return frame.getMethodName().equals("commit") && frame.getClassName().equals(RocksDB.class.getName());
  }

  private void replaceDatabase() {
    org.rocksdb.RocksDB opened = (org.rocksdb.RocksDB) DB.getVolatile(this);
    if (opened != null) {
      open = new LazyRocksDB(opened, files);
      open.compactWithHoles(rocksDbOptions(), compactedBytesPerSecond);
      DB.setVolatile(this, open);
      opensLazily = false;
    }
  }

  @Override
  public void close() {
    // A load that has failed may have left it open.
    endCounting();
    super.close();
    if (disk != null) {
      disk.close();
    }
    if (files != null) {
      files.close();
    }
    if (early != null) {
      early.close();
    }
    if (listener != null) {
      listener.close();
    }
  }
}
