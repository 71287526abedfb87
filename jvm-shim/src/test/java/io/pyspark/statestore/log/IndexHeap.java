package io.pyspark.statestore.log;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.format.Header;
import io.pyspark.statestore.format.MergedFileWriter;
import io.pyspark.statestore.learn.FreshnessKey;
import io.pyspark.statestore.learn.IndexTransport;
import io.pyspark.statestore.write.ProcessFacts;
import io.pyspark.statestore.write.TaskEnd;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.zip.CRC32C;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Opens logs of a checkpoint with many segments, so that a caller can measure the heap that they take. */
public final class IndexHeap implements AutoCloseable {
  private static final long CREATED_MS = 1_700_000_000_000L;

  /** Of a hundred segments of a store, so many are SSTs; one is a zip. */
  private static final int SSTS = 20;

  private static final int GROUP = 1_000;
  private static final byte[] PAYLOAD = new byte[16];
  private static final String RUN = "run";

  private final FileSystem fs;
  private final Path state;
  private final Options options;
  private final ProcessFacts facts;
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task, "index-heap");
            thread.setDaemon(true);
            return thread;
          });
  private MergedLog full;
  private MergedLog served;

  /**
   * @param state directory on {@code fs}
   */
  public IndexHeap(FileSystem fs, Path state, Configuration conf) throws IOException {
    this.fs = fs;
    this.state = state;
    options = Options.from(conf);
    java.nio.file.Path local = Files.createDirectories(java.nio.file.Path.of(state.toUri().getPath() + "-local"));
    facts = new ProcessFacts(Map::of, () -> local, () -> 1, 60_000, TaskEnd.NONE);
  }

  /**
   * Writes a checkpoint: in each file, the same share of every store's segments.
   *
   * @param deletions of segments that no file has any more, in addition, for each store
   */
  public void write(int stores, int segmentsPerStore, int deletions, int files) throws IOException {
    long stamp = CREATED_MS << 16;
    for (int number = 1; number <= files; number++) {
      String name = String.format("%013d-%016x-%d%s", CREATED_MS, (long) number, number, Storage.SUFFIX);
      Header header = Header.of(number, CREATED_MS, "{\"plain\":false,\"fronts\":true}");
      try (OutputStream out = new BufferedOutputStream(fs.create(new Path(new Path(state, Storage.DIRECTORY), name)))) {
        MergedFileWriter writer = new MergedFileWriter(out, header);
        List<String> group = new ArrayList<>();
        for (int store = 0; store < stores; store++) {
          for (int each = number - 1; each < segmentsPerStore + deletions; each += files) {
            group.add(path(store, each, segmentsPerStore));
            if (group.size() == GROUP) {
              stamp = end(writer, group, stamp, number);
            }
          }
        }
        if (!group.isEmpty()) {
          stamp = end(writer, group, stamp, number);
        }
        writer.seal(++stamp);
      }
    }
  }

  private static String path(int store, int each, int segments) {
    String directory = "0/" + store + "/";
    if (each >= segments) {
      return directory + (100_000 + each) + ".changelog.deleted";
    }
    if (each == 0) {
      return directory + "1000.zip";
    }
    return each % (100 / SSTS) == 0
        ? directory + "SSTs/" + String.format("%06d-%s.sst", each, new UUID(store, each))
        : directory + (1000 + each) + ".changelog";
  }

  private static long end(MergedFileWriter writer, List<String> group, long stamp, long id) throws IOException {
    CRC32C crc = new CRC32C();
    crc.update(PAYLOAD);
    int crc32c = (int) crc.getValue();
    long last = stamp;
    long payload = group.stream().filter(path -> !path.endsWith(".deleted")).count() * PAYLOAD.length;
    List<String> paths = group.stream().map(path -> path.replace(".deleted", "")).toList();
    writer.announce(payload, paths);
    List<Entry> entries = new ArrayList<>();
    for (int each = 0; each < group.size(); each++) {
      String path = paths.get(each);
      last++;
      if (group.get(each).equals(path)) {
        long offset = writer.payload(PAYLOAD.length, out -> out.write(PAYLOAD));
        entries.add(new Entry(Entry.PUT, Entry.typeOf(path), 0, crc32c, last, id, offset, PAYLOAD.length, 0, path));
      } else {
        entries.add(new Entry(Entry.DELETE, Entry.typeOf(path), 0, 0, last, id, 0, 0, 0, path));
      }
    }
    writer.endGroup(entries, ++last);
    group.clear();
    return last;
  }

  /** Opens the log of a driver, which answers executors; returns how many segments live in it. */
  public int openFull() throws IOException {
    full = new MergedLog(fs, state, options, facts, threads, null, RUN, "");
    full.serve();
    return full.index().totals().liveSegments();
  }

  /** Opens the log of an executor that serves the first so many stores; returns how many segments live in it. */
  public int openServed(int stores) throws IOException {
    IndexTransport transport =
        question ->
            CompletableFuture.completedFuture(MergedLogs.answer(question, this, (directory, run) -> full).join());
    for (int store = 0; store < stores; store++) {
      FreshnessKey key = new FreshnessKey.StageAttempt("application", 0, 0, true);
      String path = "0/" + store + "/1000.zip";
      if (served == null) {
        served = new MergedLog(fs, state, options, facts, threads, transport, RUN, path, key);
      } else {
        served.refreshFor(path, key);
      }
    }
    return served.index().totals().liveSegments();
  }

  /** Forgets the logs. */
  @Override
  public void close() {
    if (full != null) {
      full.abandon();
    }
    full = null;
    served = null;
    threads.shutdown();
  }
}
