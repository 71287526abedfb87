package io.pyspark.statestore.sink.join;

import io.pyspark.statestore.sink.join.Joined.Left;
import io.pyspark.statestore.sink.join.Joined.Part;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Map$;

/**
 * Copies row by row, with Spark's own reader and writer of the format. The rows of each file are counted and summed up
 * as they are read; the new file is read again, and so are its rows. What the reader does not find at all, it does not
 * find in the new file either, so what the files say of themselves ({@link Footer}) is compared, too.
 */
final class RowCopy implements JoinedFiles.Copy {
  private static final long serialVersionUID = 1L;

  private static final long SEED = 42;

  /** So often a file that cannot be read makes the others be copied again. */
  private static final int MOST_RESTARTS = 4;

  private final WrittenFormat.Kind format;
  private final StructType schema;
  private final Function1<PartitionedFile, Iterator<InternalRow>> rows;
  private final Function1<PartitionedFile, Iterator<InternalRow>> emptyRows;
  private final OutputWriterFactory writers;
  private final long mostRows;

  /**
   * @param rows reads a file
   * @param emptyRows reads no column of a file, so that of a columnar one only the footer is read
   * @param mostRows of a file
   */
  RowCopy(
      WrittenFormat.Kind format,
      StructType schema,
      Function1<PartitionedFile, Iterator<InternalRow>> rows,
      Function1<PartitionedFile, Iterator<InternalRow>> emptyRows,
      OutputWriterFactory writers,
      long mostRows) {
    this.format = format;
    this.schema = schema;
    this.rows = rows;
    this.emptyRows = emptyRows;
    this.writers = writers;
    this.mostRows = mostRows;
  }

  @Override
  public Joined copy(List<FileStatus> files, Function<String, Path> next, int number, Configuration conf)
      throws IOException {
    TaskAttemptID id = new TaskAttemptID("compaction", 0, TaskType.MAP, number, 0);
    TaskAttemptContext context = new TaskAttemptContextImpl(conf, id);
    // As Spark names files: after the UUID comes what counts a task's files, in one of two ways, and then the ending.
    String counter = PartNames.ending(files.get(0).getPath().getName()).replaceFirst("(?<=.)\\..*", "");
    List<FileStatus> open = new ArrayList<>(files);
    List<Left> left = new ArrayList<>();
    while (open.size() > 1 && left.size() < MOST_RESTARTS) {
      Pass pass = new Pass(next, counter, context);
      Joined joined = pass.run(open);
      if (joined != null) {
        left.addAll(joined.left());
        return new Joined(joined.sources(), joined.made(), left);
      }
      left.add(pass.odd);
      open.remove(pass.odd.file());
    }
    String why = open.size() > 1 ? "too many of the files beside it cannot be joined" : "no other file goes with it";
    open.forEach(file -> left.add(new Left(file, why)));
    return new Joined(List.of(), List.of(), left);
  }

  /** Writes rows to a file of a directory. */
  Path write(Path directory, List<UnsafeRow> given, Configuration conf) {
    TaskAttemptID id = new TaskAttemptID("compaction", 0, TaskType.MAP, 0, 0);
    TaskAttemptContext context = new TaskAttemptContextImpl(conf, id);
    Path path = new Path(directory, PartNames.newName(0, 0, "-c000" + writers.getFileExtension(context)));
    OutputWriter writer = writers.newInstance(path.toString(), schema, context);
    try {
      given.forEach(writer::write);
    } finally {
      writer.close();
    }
    return path;
  }

  /** The rows of a file. */
  List<UnsafeRow> read(FileStatus file) {
    UnsafeProjection asUnsafe = UnsafeProjection.create(schema);
    List<UnsafeRow> found = new ArrayList<>();
    for (Iterator<InternalRow> i = rows.apply(whole(file)); i.hasNext(); ) {
      found.add(asUnsafe.apply(i.next()).copy());
    }
    return found;
  }

  /** One way through files. */
  private final class Pass {
    private final Function<String, Path> next;
    private final String counter;
    private final TaskAttemptContext context;
    private final UnsafeProjection asUnsafe = UnsafeProjection.create(schema);
    private final List<Part> sources = new ArrayList<>();
    private final List<Part> made = new ArrayList<>();

    /** What the files say of themselves, and the new ones; null where their format says nothing. */
    private Map<String, Long> held = new LinkedHashMap<>();

    private Map<String, Long> has = new LinkedHashMap<>();
    private NewFile file;

    /** The file because of which this ended. */
    private Left odd;

    Pass(Function<String, Path> next, String counter, TaskAttemptContext context) {
      this.next = next;
      this.counter = counter;
      this.context = context;
    }

    /** Joins files; null where one of them is odd. */
    Joined run(List<FileStatus> files) throws IOException {
      if (mostRows < Long.MAX_VALUE && needsAsManyFiles(files)) {
        return Joined.none(files, "maxRecordsPerFile allows no fewer files");
      }
      file = new NewFile();
      try (FetchedFiles fetched = new FetchedFiles(files, context.getConfiguration())) {
        int at = 0;
        for (FileStatus from = fetched.next(); from != null; from = fetched.next()) {
          FileStatus planned = files.get(at++);
          if (!take(planned, from)) {
            return null;
          }
        }
        String why = finish();
        return why == null ? new Joined(sources, made, List.of()) : Joined.none(files, why);
      } finally {
        file.giveUp();
      }
    }

    private boolean needsAsManyFiles(List<FileStatus> files) throws IOException {
      long all = 0;
      for (FileStatus each : files) {
        for (Iterator<InternalRow> i = emptyRows.apply(whole(each)); i.hasNext(); i.next()) {
          all++;
        }
      }
      return (all + mostRows - 1) / mostRows >= files.size();
    }

    private boolean take(FileStatus planned, FileStatus from) throws IOException {
      long count = 0;
      long sum = 0;
      boolean isWriting = false;
      try {
        addTo(held, from.getPath());
        String otherZone = Footer.otherZone(format, from.getPath(), context.getConfiguration());
        if (otherZone != null) {
          odd = new Left(planned, otherZone);
          return false;
        }
        for (Iterator<InternalRow> i = rows.apply(whole(from)); i.hasNext(); count++) {
          UnsafeRow row = asUnsafe.apply(i.next());
          sum += checksum(row);
          isWriting = true;
          write(row);
          isWriting = false;
        }
      } catch (IOException | RuntimeException e) {
        if (isWriting || !FetchedFiles.isSound(from, context.getConfiguration())) {
          throw e;
        }
        odd = new Left(planned, "it cannot be read: " + Joined.reason(e));
        return false;
      }
      sources.add(new Part(planned, count, sum));
      return true;
    }

    private void write(InternalRow row) throws IOException {
      if (file.count == mostRows) {
        file.close();
        made.add(file.read());
        file = new NewFile();
      }
      file.write(row);
    }

    /** Reads what was written; says why it does not count, to users. */
    private String finish() throws IOException {
      file.close();
      made.add(file.read());
      if (made.size() >= sources.size()) {
        return "it would not be fewer files";
      }
      long count = sources.stream().mapToLong(Part::count).sum() - made.stream().mapToLong(Part::count).sum();
      long sum = sources.stream().mapToLong(Part::checksum).sum() - made.stream().mapToLong(Part::checksum).sum();
      if (count != 0 || sum != 0) {
        return "what was made of it has other rows";
      }
      return held == null || has == null ? null : Footer.missing(held, has);
    }

    private void addTo(Map<String, Long> all, Path path) throws IOException {
      Map<String, Long> found = Footer.values(format, path, context.getConfiguration());
      if (found == null) {
        held = null;
        has = null;
      } else if (all != null) {
        Footer.add(all, found);
      }
    }

    /** One file that is written, and how many rows went to it. */
    private final class NewFile {
      private final Path path = next.apply(counter + writers.getFileExtension(context));
      private final OutputWriter writer = writers.newInstance(path.toString(), schema, context);
      private long count;
      private boolean closed;

      void write(InternalRow row) {
        writer.write(row);
        count++;
      }

      void close() {
        closed = true;
        writer.close();
      }

      /** Reads it again. */
      Part read() throws IOException {
        FileStatus status = path.getFileSystem(context.getConfiguration()).getFileStatus(path);
        long found = 0;
        long sum = 0;
        for (Iterator<InternalRow> i = rows.apply(whole(status)); i.hasNext(); found++) {
          sum += checksum(asUnsafe.apply(i.next()));
        }
        addTo(has, path);
        return new Part(status, found, sum);
      }

      /** Closes it where it was not finished; what failed before is what counts. */
      void giveUp() {
        if (!closed) {
          closed = true;
          try {
            writer.close();
          } catch (RuntimeException e) {
            // What was written is deleted.
          }
        }
      }
    }
  }

  static long checksum(UnsafeRow row) {
    return XXH64.hashUnsafeBytes(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes(), SEED);
  }

  private static PartitionedFile whole(FileStatus file) {
    long length = file.getLen();
    return new PartitionedFile(
        InternalRow.empty(),
        SparkPath.fromPath(file.getPath()),
        0,
        length,
        new String[0],
        0,
        length,
        Map$.MODULE$.empty());
  }
}
