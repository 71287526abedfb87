package io.pyspark.statestore.sink;

import io.pyspark.statestore.files.ObjectStores;
import io.pyspark.statestore.sink.Bins.Bin;
import io.pyspark.statestore.sink.join.Compaction;
import io.pyspark.statestore.sink.join.FileCopies;
import io.pyspark.statestore.sink.join.Join;
import io.pyspark.statestore.sink.join.Joined;
import io.pyspark.statestore.sink.join.Joined.Part;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Brings the files of an attempt to their final places: joined, or as they are where they cannot be joined. No list
 * names them before the caller has Spark add them to one.
 *
 * <p>Where renames are cheap, files are joined and copied in the staging directory and renamed. An object store would
 * copy them to rename them, so there they are written to their places at once.
 */
final class Placement {
  private static final Logger LOG = LoggerFactory.getLogger(Placement.class);
  private static final String JOINED = "_joined";

  private final Staging staging;
  private final Path sink;
  private final FileSystem fs;
  private final boolean renamesCheaply;
  private final Compaction compaction;
  private final List<Path> placed;

  /**
   * @param placed takes each file before it comes to its place
   */
  Placement(Staging staging, Compaction compaction, List<Path> placed) {
    this.staging = staging;
    this.sink = staging.sink();
    this.fs = staging.fileSystem();
    this.renamesCheaply = !ObjectStores.isOne(fs);
    this.compaction = compaction;
    this.placed = placed;
  }

  /**
   * What became of bins.
   *
   * @param published files in their final places
   * @param waiting files in the places where they wait
   * @param joined what became of each bin that was to be joined; the new files as they are in their places
   */
  record Placed(List<FileStatus> published, List<FileStatus> waiting, Map<Bin, Joined> joined) {}

  /**
   * Joins the files of bins and brings all files to their places. Of a bin that waits, files that wait already stay as
   * they are. What cannot be joined comes to its place as it is.
   */
  Placed place(List<Bin> bins) throws IOException {
    List<Bin> toJoin = new ArrayList<>();
    List<Join> joins = new ArrayList<>();
    List<Move> moves = new ArrayList<>();
    for (Bin bin : bins) {
      List<FileStatus> files = bin.waits() ? bin.files().stream().filter(file -> !waits(file)).toList() : bin.files();
      if (files.size() > 1 && compaction.whyNot() == null) {
        // No reader looks where files wait, so that place needs no rename.
        boolean atOnce = bin.waits() || !renamesCheaply;
        joins.add(new Join(atOnce ? directory(bin) : directory(bin, new Path(staging.path(), JOINED)), files));
        toJoin.add(bin);
      } else {
        files.forEach(file -> addMove(moves, bin, file));
      }
    }
    List<Joined> made = join(joins);
    List<FileStatus> there = new ArrayList<>();
    for (int at = 0; at < joins.size(); at++) {
      Bin bin = toJoin.get(at);
      made.get(at).left().forEach(left -> addMove(moves, bin, left.file()));
      for (Part part : made.get(at).made()) {
        if (isIn(directory(bin), part.file())) {
          placed.add(part.file().getPath());
          there.add(part.file());
        } else {
          moves.add(new Move(part.file(), new Path(directory(bin), part.file().getPath().getName())));
        }
      }
    }
    there.addAll(move(moves));
    Map<String, FileStatus> byName = new HashMap<>();
    there.forEach(file -> byName.put(file.getPath().getName(), file));
    Account.check(joins.stream().map(Join::files).toList(), made, byName);
    Map<Bin, Joined> joined = new LinkedHashMap<>();
    for (int at = 0; at < joins.size(); at++) {
      joined.put(toJoin.get(at), made.get(at).at(byName));
    }
    Map<Boolean, List<FileStatus>> byWaits = there.stream().collect(Collectors.partitioningBy(this::waits));
    return new Placed(byWaits.get(false), byWaits.get(true), joined);
  }

  /** A file that a sink has listed long ago is in its place. */
  private void addMove(List<Move> moves, Bin bin, FileStatus file) {
    if (!isIn(directory(bin), file)) {
      moves.add(new Move(file, new Path(directory(bin), nameOf(file))));
    }
  }

  private static boolean isIn(Path directory, FileStatus file) {
    return SinkPaths.areSame(file.getPath().getParent(), directory);
  }

  private Path directory(Bin bin) {
    return directory(bin, bin.waits() ? new Path(sink, SinkPlaces.WAITING) : sink);
  }

  /** Another attempt may have left a copy of what waits under a name that the list did not take. */
  private String nameOf(FileStatus file) {
    String name = file.getPath().getName();
    return waits(file) ? compaction.newName(name) : name;
  }

  private boolean waits(FileStatus file) {
    return Waiting.holds(sink, file.getPath());
  }

  private List<Joined> join(List<Join> joins) throws IOException {
    boolean done = false;
    try {
      List<Joined> made = compaction.join(joins);
      done = true;
      return made;
    } finally {
      if (!done) {
        Predicate<Path> isStaging = directory -> SinkPaths.isBelow(staging.path(), directory);
        joins.stream().map(Join::directory).distinct().filter(isStaging.negate()).forEach(this::deleteMadeIn);
      }
    }
  }

  /** Tasks that succeeded in a job that failed have written to where files are to be. */
  private void deleteMadeIn(Path directory) {
    try {
      for (FileStatus file : fs.listStatus(directory)) {
        if (compaction.hasMade(file.getPath().getName())) {
          fs.delete(file.getPath(), false);
        }
      }
    } catch (IOException | RuntimeException e) {
      LOG.debug("Files in {} that were made in vain could not be deleted; no list names them", directory, e);
    }
  }

  private static Path directory(Bin bin, Path root) {
    return SinkPaths.inside(root, bin.directory());
  }

  /** A file that is to be in another place. */
  private record Move(FileStatus file, Path to) {}

  private List<FileStatus> move(List<Move> moves) throws IOException {
    Set<Path> directories = new LinkedHashSet<>();
    moves.forEach(move -> directories.add(move.to().getParent()));
    Staging.inParallel(directories.stream().map(directory -> (Callable<Boolean>) () -> fs.mkdirs(directory)).toList());
    moves.forEach(move -> placed.add(move.to()));
    Map<Boolean, List<Move>> byWaits = moves.stream().collect(Collectors.partitioningBy(move -> waits(move.file())));
    List<Move> renames = new ArrayList<>(byWaits.get(false));
    List<FileStatus> there = new ArrayList<>();
    List<FileStatus> copies = copy(byWaits.get(true));
    for (int at = 0; at < copies.size(); at++) {
      if (renamesCheaply) {
        renames.add(new Move(copies.get(at), byWaits.get(true).get(at).to()));
      } else {
        there.add(copies.get(at));
      }
    }
    there.addAll(
        Staging.inParallel(
            renames.stream().map(move -> (Callable<FileStatus>) () -> rename(move.file(), move.to())).toList()));
    return there;
  }

  /** What waits is copied, in tasks: it is needed again where the batch is not committed. */
  private List<FileStatus> copy(List<Move> moves) throws IOException {
    List<Path> to = moves.stream().map(Move::to).toList();
    if (renamesCheaply) {
      to = to.stream().map(place -> new Path(staging.path(), JOINED + "/" + place.getName())).toList();
    }
    return FileCopies.copy(moves.stream().map(Move::file).toList(), to, renamesCheaply, staging.configuration());
  }

  private FileStatus rename(FileStatus from, Path to) throws IOException {
    if (!fs.rename(from.getPath(), to)) {
      throw new IOException(from.getPath() + " could not be renamed to " + to);
    }
    FileStatus there = fs.getFileStatus(to);
    if (there.getLen() != from.getLen()) {
      throw new IOException(to + " has " + there.getLen() + " bytes, and was renamed with " + from.getLen());
    }
    return there;
  }

  /** Looks once more at files that are about to be listed. */
  void requireThere(List<FileStatus> files) throws IOException {
    Staging.inParallel(
        files.stream()
            .map(
                file ->
                    (Callable<Boolean>)
                        () -> {
                          if (fs.getFileStatus(file.getPath()).getLen() != file.getLen()) {
                            throw new IOException(file.getPath() + " has no longer " + file.getLen() + " bytes");
                          }
                          return true;
                        })
            .toList());
  }
}
