package io.pyspark.statestore.learn;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.files.WriterIdentity;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.Group;
import io.pyspark.statestore.format.MergedFileReader;
import io.pyspark.statestore.format.PathRules;
import io.pyspark.statestore.index.HybridClock;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;

/** Reads the indexes of merged files into the {@link Index}: of a known file only the groups that are new. */
public final class IndexReader {
  /** How often one file is opened to read what is new in it, and for how long. */
  private static final int READS = 10;

  private static final long READ_NANOS = 10_000_000_000L;

  private final Storage storage;
  private final Index index;
  private final Rules rules;
  private final HybridClock clock;
  private volatile boolean bornMerged;

  IndexReader(Storage storage, Index index, Rules rules, HybridClock clock) {
    this.storage = storage;
    this.index = index;
    this.rules = rules;
    this.clock = clock;
  }

  /** Whether a header has said that the checkpoint was begun with merging. */
  public boolean bornMerged() {
    return bornMerged;
  }

  public void bornMerged(boolean value) {
    bornMerged = value;
  }

  /** What a refresh knows of a file before it is read. */
  record Listed(FileStatus status, long newestModification, long refresh) {
    String name() {
      return status.getPath().getName();
    }
  }

  /**
   * Reads what is new in a file.
   *
   * @param known the file, or null where the index does not know it
   * @param mayBeCovered for an index-only file, the listed files that it may repeat; else empty
   * @return false where the file no longer exists
   * @throws CutOffException where an index-only file shows that a file which it repeats was cut off
   */
  boolean read(Listed listed, MergedFile known, Map<String, FileStatus> mayBeCovered) throws IOException {
    String name = listed.name();
    FileStatus status = listed.status();
    long beganMs = rules.now().monotonicMs();
    try {
      MergedFileReader.Parsed parsed = parse(name, known, status);
      for (Group group : parsed.groups()) {
        requireWhole(name, group, mayBeCovered);
      }
      MergedFile file = known;
      if (file == null) {
        file = index.addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, rules.now()));
        if (file.writer() == MergedFile.Writer.THIS_PROCESS) {
          return true;
        }
        file.listed(status.getLen(), status.getModificationTime(), listed.newestModification());
      }
      long trailer = file.lastTrailer();
      long lastStamp = parsed.header() == null ? 0 : parsed.header().createdMs() << 16;
      for (Group group : parsed.groups()) {
        apply(file, group, mayBeCovered, listed.refresh());
        clock.observe(group.trailer().groupStamp());
        file.grouped(group.trailer().groupStamp());
        trailer = group.trailerOffset();
        lastStamp = Math.max(lastStamp, group.trailer().groupStamp());
      }
      if (parsed.groups().isEmpty() && trailer > 0) {
        lastStamp = Math.max(lastStamp, file.lastStamp());
      }
      boolean isDoubtful = parsed.header() == null && parsed.length() > 0 && storage.restsOnReferences();
      file.accounted(parsed.accounted() && !isDoubtful);
      file.hasOwnName(parsed.header() != null && PathRules.isOwnName(name, parsed.header()));
      file.read(
          parsed.length(), trailer, parsed.isSealed(), lastStamp, beganMs, rules.now().monotonicMs(), listed.refresh());
      file.ignored(parsed.length() - parsed.validLength());
      if (parsed.header() != null && WriterIdentity.saysBornMerged(parsed.header().metaJson())) {
        bornMerged = true;
      }
      return true;
    } catch (FileNotFoundException e) {
      return false;
    }
  }

  /**
   * Parses the groups that are not known. If another process has appended since the file was opened, a file system may
   * refuse to read on (ABFS does, with "412 ConditionNotMet"), so the file is opened again.
   */
  private MergedFileReader.Parsed parse(String name, MergedFile known, FileStatus status) throws IOException {
    boolean isClosed = known != null && rules.isClosed(known);
    long begin = System.nanoTime();
    for (int attempt = 1; ; attempt++) {
      // If that fails, the file may have grown since it was listed.
      long listedLength = attempt == 1 ? status.getLen() : -1;
      FSDataInputStream in = storage.openUnclosed(name, isClosed, rules.options().closedAfterMs(), listedLength);
      try (in) {
        return MergedFileReader.readSince(
            Storage.ranges(storage.path(name).toString(), in, status.getLen()),
            known == null ? 0 : known.lastTrailer());
      } catch (FileNotFoundException | StateStoreFilesException e) {
        throw e;
      } catch (IOException e) {
        boolean late = attempt == READS || System.nanoTime() - begin > READ_NANOS;
        if (late || Thread.currentThread().isInterrupted()) {
          throw e;
        }
      }
    }
  }

  /** A sealed file was cut off afterwards. The file itself does not show that. */
  static final class CutOffException extends StateStoreFilesException {
    private static final long serialVersionUID = 1L;

    CutOffException(String message) {
      super(Id.PSS_CORRUPT_INDEX, message);
    }
  }

  /**
   * Checks that the files which an index-only file repeats, and which are not opened therefore, hold their segments.
   */
  private void requireWhole(String indexOnly, Group group, Map<String, FileStatus> mayBeCovered)
      throws CutOffException {
    for (Entry entry : mayBeCovered.isEmpty() || !group.trailer().isIndexOnly() ? List.<Entry>of() : group.entries()) {
      FileStatus covered = entry.fileRef() == 0 ? null : mayBeCovered.get(group.names().get(entry.fileRef() - 1));
      if (entry.isPut() && covered != null && covered.getLen() < entry.offset() + entry.length()) {
        throw new CutOffException(
            covered.getPath()
                + " is damaged at offset "
                + covered.getLen()
                + ": the file was"
                + " sealed and later cut off, as "
                + indexOnly
                + " shows. Restore the file from a"
                + " copy; nothing was changed or deleted.");
      }
    }
  }

  private void apply(MergedFile file, Group group, Map<String, FileStatus> mayBeCovered, long refresh) {
    if (group.trailer().isForeign()) {
      file.references(group.names(), group.entries());
    }
    if (!group.trailer().isIndexOnly()) {
      index.apply(file, group.entries());
      return;
    }
    file.indexOnly(group.names());
    Map<Integer, List<Entry>> byFile = new LinkedHashMap<>();
    group.entries().forEach(e -> byFile.computeIfAbsent(e.fileRef(), r -> new ArrayList<>()).add(e));
    for (int ref = 1; ref <= group.names().size(); ref++) {
      String name = group.names().get(ref - 1);
      FileStatus covered = mayBeCovered.get(name);
      MergedFile owner = index.file(name);
      boolean first = owner == null && covered != null;
      if (first) {
        owner = index.addIfAbsent(new MergedFile(name, MergedFile.Writer.OTHER, rules.now()));
      }
      if (owner != null && owner.writer() != MergedFile.Writer.THIS_PROCESS) {
        List<Entry> entries = byFile.getOrDefault(ref, List.of());
        index.apply(owner, entries);
        if (first) {
          owner.readElsewhere(covered.getLen(), entries.stream().mapToLong(Entry::stamp).max().orElse(0), refresh);
        }
      }
    }
  }
}
