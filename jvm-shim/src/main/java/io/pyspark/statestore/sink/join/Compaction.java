package io.pyspark.statestore.sink.join;

import java.io.IOException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.types.StructType;

/**
 * Joins files: one Spark job, a task for each bin. Text, JSON, CSV and XML are copied byte by byte, everything else
 * with Spark's own reader and writer, which are given the schema, the options and the settings of the query.
 */
public final class Compaction {
  private static final String MOST_ROWS = "maxRecordsPerFile";

  /** In these a line ends with the same byte as in UTF-8, and nothing marks the beginning of a file. */
  private static final Set<Charset> PLAIN_CHARSETS =
      Set.of(StandardCharsets.UTF_8, StandardCharsets.US_ASCII, StandardCharsets.ISO_8859_1);

  private final WrittenFormat written;
  private final Configuration conf;
  private final Map<String, String> options;
  private final long attempt;
  private boolean isKnown;
  private String whyNot;

  /**
   * A compaction whose new files have names that those of no other have.
   *
   * @param conf of the query's job
   */
  public Compaction(WrittenFormat written, Configuration conf) {
    this(written, conf, ThreadLocalRandom.current().nextLong());
  }

  /**
   * The same for an attempt that somebody else has begun.
   *
   * @param attempt that the names of all new files have in common
   */
  public Compaction(WrittenFormat written, Configuration conf, long attempt) {
    this.written = written;
    this.conf = new Configuration(conf);
    FetchedFileSystem.enterIn(this.conf);
    this.options = written.optionsAsMap();
    this.attempt = attempt;
  }

  /** Why no files can be joined, for users; null where they can. */
  public String whyNot() {
    if (!isKnown) {
      whyNot = written.isText() ? whyNotText() : whyNotRows();
      isKnown = true;
    }
    return whyNot;
  }

  private String whyNotRows() {
    if (written.schema().isEmpty() && written.kind() == WrittenFormat.Kind.OTHER) {
      return "files of this format do not name their columns, which only the query knows";
    }
    String namesAlike = written.namesAlike();
    if (namesAlike != null) {
      return namesAlike;
    }
    return Probe.whyNot(written, conf, this::rowCopy);
  }

  private String whyNotText() {
    if (mostRows() < Long.MAX_VALUE) {
      return "maxRecordsPerFile limits them, and the records of text are not counted";
    }
    if (!PLAIN_CHARSETS.contains(charset())) {
      return "they are text in another charset than UTF-8, ASCII or ISO-8859-1";
    }
    String whyNoHeader = TextForm.whyNoHeader(written, options);
    if (whyNoHeader != null) {
      return whyNoHeader;
    }
    boolean isPretty = written.kind() == WrittenFormat.Kind.JSON && Boolean.parseBoolean(options.get("pretty"));
    return isPretty
        ? "they are written with the option pretty, and who reads such a file takes it for one record"
        : null;
  }

  /** A name of this attempt's for a copy of a file. */
  public String newName(String name) {
    return PartNames.newName(attempt, 0, PartNames.ending(name));
  }

  /** Whether this has made a file, by its name; also one that nobody knows of because the job has failed. */
  public boolean hasMade(String name) {
    return PartNames.isOf(attempt, name);
  }

  /**
   * Joins the files of each.
   *
   * @return what became of each, in the same order
   */
  public List<Joined> join(List<Join> joins) throws IOException {
    if (joins.isEmpty()) {
      return List.of();
    }
    // A format enters in it what is to be written.
    Job job = Job.getInstance(conf);
    JoinedFiles.Copy copy = copy(job);
    List<Integer> numbers = IntStream.range(0, joins.size()).boxed().toList();
    List<byte[]> answers =
        Jobs.run(
            written.session(),
            numbers,
            job.getConfiguration(),
            broadcast -> new JoinedFiles(broadcast, attempt, copy, joins));
    List<Joined> joined = new ArrayList<>();
    for (byte[] answer : answers) {
      joined.add(Joined.fromBytes(answer));
    }
    return joined;
  }

  private JoinedFiles.Copy copy(Job job) throws IOException {
    return written.isText() ? new TextCopy(TextForm.of(written, options, charset(), written.isTold())) : rowCopy(job);
  }

  private RowCopy rowCopy(Job job) {
    return new RowCopy(
        written.kind(),
        written.schema(),
        FileFormats.reader(written, written.schema(), new Configuration(conf)),
        FileFormats.reader(written, new StructType(), new Configuration(conf)),
        written.format().prepareWrite(written.session(), job, written.options(), written.schema()),
        mostRows());
  }

  private Charset charset() {
    return Charset.forName(options.getOrDefault("encoding", options.getOrDefault("charset", "UTF-8")));
  }

  private long mostRows() {
    String ofSession = written.session().conf().get("spark.sql.files.maxRecordsPerFile", "0");
    long most = Long.parseLong(options.getOrDefault(MOST_ROWS, ofSession));
    return most > 0 ? most : Long.MAX_VALUE;
  }
}
