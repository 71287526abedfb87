package io.pyspark.statestore.tables;

import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.LogicalPaths;
import io.pyspark.statestore.index.Rules;
import io.pyspark.statestore.index.Segment;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexSource;
import io.pyspark.statestore.learn.Pins;
import io.pyspark.statestore.metrics.LogMetrics;
import io.pyspark.statestore.write.Commit;
import io.pyspark.statestore.write.Commits;
import io.pyspark.statestore.write.Payload;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.function.LongConsumer;
import java.util.function.Predicate;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The snapshots of RocksDB stores on their way into one checkpoint. Spark hands over the SSTs, which are staged, and
 * then the zip that names them: with it go those that are staged and were not uploaded as RocksDB made them.
 */
public final class Snapshots implements Commits.Companions {
  private static final Logger LOG = LoggerFactory.getLogger(Snapshots.class);

  private final Storage storage;
  private final Index index;
  private final Rules rules;
  private final LogMetrics metrics;
  private final Commits commits;
  private final Loads loads;
  private final StagedFiles staged = new StagedFiles();
  private final SnapshotGuard guard;
  private final EarlyUploads earlyUploads;
  private final AtomicBoolean warnedOfNoEarlyUploads = new AtomicBoolean();

  /**
   * @param bornMerged whether the checkpoint was begun with merging, so that no plain state file can exist in it
   * @param written is told how many bytes were uploaded early
   */
  public Snapshots(
      Storage storage,
      Index index,
      Rules rules,
      LogMetrics metrics,
      long writerId,
      Pins pins,
      IndexSource source,
      Commits commits,
      Loads loads,
      BooleanSupplier bornMerged,
      LongConsumer written,
      Executor threads) {
    this.storage = storage;
    this.index = index;
    this.rules = rules;
    this.metrics = metrics;
    this.commits = commits;
    this.loads = loads;
    guard = new SnapshotGuard(storage, index, rules, writerId, source, bornMerged);
    earlyUploads =
        new EarlyUploads(
            storage.stateDirectory(),
            rules::options,
            commits::laneForEarlyUploads,
            store -> commits.serves(store + "/"),
            commits.localSpace(),
            index,
            pins,
            loads,
            metrics,
            written,
            threads);
  }

  /** A task of a run asks for something of a partition: see {@link SnapshotGuard#meets}. */
  public void meets(String path, FreshnessKey.QueryRun run) {
    guard.meets(path, run);
  }

  /**
   * Stages a local immutable file of a snapshot. It becomes visible with the zip that names it.
   *
   * @return false where {@code path} is not such a file, and has to be created as any other
   */
  public boolean stage(String path, Path localFile) throws IOException {
    String store = LogicalPaths.storeOfImmutable(path);
    if (store == null) {
      return false;
    }
    boolean isUploaded = false;
    if (EarlyFiles.isKnown(storage.stateDirectory(), store)) {
      isUploaded = EarlyFiles.handedOver(storage.stateDirectory(), store, path, localFile);
    } else if (rules.options().uploadAsCreated() && !warnedOfNoEarlyUploads.getAndSet(true)) {
      LOG.warn(
          "upload=created has no effect for {}: RocksDB says which SSTs it makes with the provider door, on Spark"
              + " 4.1 and later. They are written with their snapshots. What to do: use that door, or leave upload out",
          storage.checkpoint());
    }
    staged.add(store, new Commit.Item(path, keep(localFile, isUploaded)));
    return true;
  }

  /**
   * Keeps a file for its snapshot.
   *
   * @param isUploaded whether it is in the checkpoint already, so that it does not matter if parts of it have gone
   */
  private StagedTable keep(Path localFile, boolean isUploaded) throws IOException {
    Object identity = PartialFiles.keyOf(localFile);
    if (isUploaded) {
      PartialFiles.Named named = new PartialFiles.Named(identity);
      boolean done = false;
      try {
        // Asked after it was said that there is a name: the store may be closed meanwhile.
        if (PartialFiles.at(localFile) != null) {
          StagedTable table = StagedTable.ofParts(commits.localSpace().link(localFile), identity, named);
          done = true;
          return table;
        }
      } catch (IOException e) {
        LOG.debug("{} is copied, and so has to be whole", localFile, e);
      } finally {
        if (!done) {
          named.close();
        }
      }
    }
    PartialFiles.Pin pin = PartialFiles.pin(localFile);
    boolean done = false;
    try {
      StagedTable table = StagedTable.ofWhole(commits.localSpace().keep(localFile), identity, pin);
      done = true;
      return table;
    } finally {
      if (!done) {
        pin.close();
      }
    }
  }

  /** With a zip goes what was staged for it. */
  @Override
  public Commits.Company of(String path, Payload payload) throws IOException {
    if (!LogicalPaths.isZip(path)) {
      return Commits.Company.NONE;
    }
    String store = LogicalPaths.directory(path);
    EarlyFiles.Publication early = EarlyFiles.Publication.NONE;
    boolean done = false;
    try {
      Set<String> named = SnapshotGuard.filesNamed(path, payload);
      early = EarlyFiles.publication(storage.stateDirectory(), store, named, each -> staged.find(each) != null, index);
      SnapshotFiles files = new SnapshotFiles(store, path, companions(store, path, named, early), early);
      done = true;
      return files;
    } finally {
      if (!done) {
        early.ended(Commits.Outcome.NOT_WRITTEN);
      }
    }
  }

  /** Checks a snapshot and takes what was staged for it. */
  private List<Commit.Item> companions(String store, String zip, Set<String> named, EarlyFiles.Publication early)
      throws IOException {
    List<Commit.Item> taken = take(store, zip, named, early);
    boolean done = false;
    try {
      for (Commit.Item each : taken) {
        // Here, and not while the group is written, where others would fail with it.
        if (!early.leavesOut(each.path()) && each.payload() instanceof StagedTable table) {
          table.complete();
        }
      }
      done = true;
    } finally {
      if (!done) {
        staged.giveBack(store, LogicalPaths.versionOfZip(zip), taken);
      }
    }
    return taken;
  }

  private List<Commit.Item> take(String store, String zip, Set<String> named, EarlyFiles.Publication early)
      throws IOException {
    Predicate<String> comes = path -> staged.find(path) != null && !early.leavesOut(path);
    if (!named.isEmpty()) {
      staged.named(store, LogicalPaths.versionOfZip(zip), named);
    }
    guard.check(zip, named, comes, commits.isLate(zip), commits.served().unwrittenMs(zip));
    // A zip that cannot be read as a snapshot's takes all that is staged for its store.
    return staged.take(store, named.isEmpty() ? path -> true : named::contains);
  }

  /** What goes with a zip. */
  private final class SnapshotFiles implements Commits.Company {
    private final String store;
    private final String zip;
    private final List<Commit.Item> companions;
    private final EarlyFiles.Publication early;

    SnapshotFiles(String store, String zip, List<Commit.Item> companions, EarlyFiles.Publication early) {
      this.store = store;
      this.zip = zip;
      this.companions = companions;
      this.early = early;
    }

    @Override
    public List<Commit.Item> items() {
      return companions.stream().filter(companion -> !early.leavesOut(companion.path())).toList();
    }

    @Override
    public void ended(Commits.Outcome outcome) {
      early.ended(outcome);
      if (outcome == Commits.Outcome.DURABLE) {
        companions.forEach(Snapshots.this::durable);
      } else {
        staged.giveBack(store, LogicalPaths.versionOfZip(zip), companions);
      }
    }
  }

  /** A file that was staged is durable. */
  private void durable(Commit.Item item) {
    Segment written = index.find(item.path());
    if (written != null && item.payload() instanceof StagedTable table) {
      loads.durable(written, table.file(), table.identity());
    }
    item.payload().close();
  }

  /** Drops a staged file, which Spark deletes before its zip has come. */
  public void drop(String path) {
    staged.drop(path);
  }

  /** A store of this process was closed, so no zip will name what is staged for it. */
  public void storeClosed(String store) {
    staged.dropStore(store);
  }

  /** Drops what has waited for long in stores that are not loaded. */
  public void dropUnclaimed() {
    staged.dropUnclaimed(rules.options().closedAfterMs(), store -> OpenStores.isOpen(storage.stateDirectory(), store));
  }

  /** Has uploaded what RocksDB has made and no snapshot names yet, where that is due. */
  public void uploadIfDue() {
    earlyUploads.runIfDue();
  }

  /** Deletes an SST that was uploaded and that no snapshot is going to name, if it is still that which lives there. */
  public void deleteEarly(EarlyFile file) {
    if (commits.deleteIfSame(file.path(), file.entry().stamp(), file.entry().writer())) {
      metrics.uploadedInVain(file.bytes());
    }
  }

  /** The files of a directory that no snapshot names yet, see {@link EarlyFiles#unpublished}. */
  public Set<String> unpublished(String directory) {
    return EarlyFiles.unpublished(storage.stateDirectory(), directory);
  }

  public void closeAll() {
    staged.closeAll();
  }
}
