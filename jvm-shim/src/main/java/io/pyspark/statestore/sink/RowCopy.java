package io.pyspark.statestore.sink;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Map$;

/**
 * Copies row by row, with Spark's own reader and writer of the format. Rows are counted on the way, and the new file is
 * asked how many it has.
 */
final class RowCopy implements JoinedFiles.Copy {
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
      StructType schema,
      Function1<PartitionedFile, Iterator<InternalRow>> rows,
      Function1<PartitionedFile, Iterator<InternalRow>> emptyRows,
      OutputWriterFactory writers,
      long mostRows) {
    this.schema = schema;
    this.rows = rows;
    this.emptyRows = emptyRows;
    this.writers = writers;
    this.mostRows = mostRows;
  }

  @Override
  public List<FileStatus> copy(List<FileStatus> files, Supplier<Path> next, int number, Configuration conf)
      throws IOException {
    List<FileStatus> made = new ArrayList<>();
    TaskAttemptID id = new TaskAttemptID("compaction", 0, TaskType.MAP, number, 0);
    NewFile file = new NewFile(next.get(), new TaskAttemptContextImpl(conf, id));
    try (FetchedFiles fetched = new FetchedFiles(files, conf)) {
      for (FileStatus from = fetched.next(); from != null; from = fetched.next()) {
        for (Iterator<InternalRow> i = rows.apply(whole(from.getPath(), from.getLen())); i.hasNext();) {
          if (file.count == mostRows) {
            made.add(file.finish());
            file = new NewFile(next.get(), file.context);
          }
          file.write(i.next());
        }
      }
      made.add(file.finish());
      return made;
    } finally {
      file.giveUp();
    }
  }

  /** One file that is written, and how many rows went to it. */
  private final class NewFile {
    private final Path path;
    private final TaskAttemptContext context;
    private final OutputWriter writer;
    private long count;
    private boolean closed;

    NewFile(Path path, TaskAttemptContext context) {
      this.path = path;
      this.context = context;
      this.writer = writers.newInstance(path.toString(), schema, context);
    }

    void write(InternalRow row) {
      writer.write(row);
      count++;
    }

    /** Closes it and counts what it holds. */
    FileStatus finish() throws IOException {
      closed = true;
      writer.close();
      long found = 0;
      FileStatus status = path.getFileSystem(context.getConfiguration()).getFileStatus(path);
      for (Iterator<InternalRow> i = emptyRows.apply(whole(path, status.getLen())); i.hasNext(); i.next()) {
        found++;
      }
      if (found != count) {
        throw JoinedFiles.differs(path, found, count, "rows");
      }
      return status;
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

  private static PartitionedFile whole(Path path, long length) {
    return new PartitionedFile(
        InternalRow.empty(), SparkPath.fromPath(path), 0, length, new String[0], 0, length, Map$.MODULE$.empty());
  }
}
