package io.pyspark.statestore.sink;

import io.pyspark.statestore.sink.JoinedFiles.Join;
import java.io.IOException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Joins files: one Spark job, a task for each new file. Text, JSON and CSV are copied byte by byte, everything
 * else with Spark's own reader and writer, which are given the schema, the options and the settings of the query.
 */
final class Compaction {
  /** The jobs' pool, where the session's scheduler is FAIR. */
  static final String POOL = "fileSinkCompaction";

  static final String POOL_PROPERTY = "spark.scheduler.pool";
  private static final String MOST_ROWS = "maxRecordsPerFile";
  /** In these a line ends with the same byte as in UTF-8, and nothing marks the beginning of a file. */
  private static final Set<Charset> PLAIN_CHARSETS =
      Set.of(StandardCharsets.UTF_8, StandardCharsets.US_ASCII, StandardCharsets.ISO_8859_1);

  private final WrittenFormat written;
  private final Configuration conf;
  private final Map<String, String> options;
  private final long attempt = ThreadLocalRandom.current().nextLong();

  Compaction(WrittenFormat written, Configuration conf) {
    this.written = written;
    this.conf = new Configuration(conf);
    FetchedFileSystem.enterIn(this.conf);
    this.options = written.optionsAsMap();
  }

  /**
   * Whether files can be joined. Not so are text files of other charsets than are usual, and those whose
   * records the user has limited: their records are not counted.
   */
  boolean canJoin() {
    return !written.isText() || mostRows() == Long.MAX_VALUE && PLAIN_CHARSETS.contains(charset());
  }

  /** Whether this has made a file, by its name; also one that nobody knows of because the job has failed. */
  boolean hasMade(String name) {
    return JoinedFiles.isOf(attempt, name);
  }

  /**
   * Joins the files of each.
   *
   * @return what each has become
   */
  List<List<FileStatus>> join(List<Join> joins) throws IOException {
    if (joins.isEmpty()) {
      return List.of();
    }
    JavaSparkContext spark = JavaSparkContext.fromSparkContext(written.session().sparkContext());
    // A format enters in it what is to be written.
    Job job = Job.getInstance(conf);
    JoinedFiles.Copy copy = copy(job);
    Broadcast<SerializableConfiguration> broadcast =
        spark.broadcast(new SerializableConfiguration(job.getConfiguration()));
    String pool = spark.getLocalProperty(POOL_PROPERTY);
    spark.setLocalProperty(POOL_PROPERTY, POOL);
    try {
      return spark.parallelize(joins, joins.size()).map(new JoinedFiles(broadcast, attempt, copy)).collect();
    } finally {
      spark.setLocalProperty(POOL_PROPERTY, pool);
      broadcast.destroy();
    }
  }

  private JoinedFiles.Copy copy(Job job) {
    if (written.isText()) {
      String separator = options.getOrDefault("lineSep", "\n");
      return new TextCopy(headerLines(separator), separator.getBytes(charset()));
    }
    return new RowCopy(
        written.schema(),
        FileFormats.reader(written, written.schema(), new Configuration(conf)),
        FileFormats.reader(written, new StructType(), new Configuration(conf)),
        written.format().prepareWrite(written.session(), job, written.options(), written.schema()),
        mostRows());
  }

  private Charset charset() {
    return Charset.forName(options.getOrDefault("encoding", options.getOrDefault("charset", "UTF-8")));
  }

  /** How many lines each file of a CSV begins with: names of columns may hold the end of a line. */
  private int headerLines(String separator) {
    if (!written.isCsv() || !Boolean.parseBoolean(options.getOrDefault("header", "false"))) {
      return 0;
    }
    int lines = 1;
    for (String name : written.schema().fieldNames()) {
      lines += name.split(java.util.regex.Pattern.quote(separator), -1).length - 1;
    }
    return lines;
  }

  private long mostRows() {
    String ofSession = written.session().conf().get("spark.sql.files.maxRecordsPerFile", "0");
    long most = Long.parseLong(options.getOrDefault(MOST_ROWS, ofSession));
    return most > 0 ? most : Long.MAX_VALUE;
  }
}
