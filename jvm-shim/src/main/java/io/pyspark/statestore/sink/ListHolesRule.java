package io.pyspark.statestore.sink;

import java.lang.reflect.Field;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Gives the file sink of each run of a query a {@link FilledSinkLog}. Spark applies such a rule when it plans a batch,
 * which is before the batch is written. The plan stays as it is.
 */
public final class ListHolesRule extends ColumnarRule {
  private static final Logger LOG = LoggerFactory.getLogger(ListHolesRule.class);

  private final SparkSession session;
  private final Supplier<Configuration> conf;

  /** The run that was looked at. Spark has a session, and with it a rule, for each run. */
  private volatile String seen = "";

  /** Of a session, with the configuration that its file systems have. */
  public ListHolesRule(SparkSession session, Supplier<Configuration> conf) {
    this.session = session;
    this.conf = conf;
  }

  @Override
  public Rule<SparkPlan> preColumnarTransitions() {
    return new Rule<>() {
      @Override
      public SparkPlan apply(SparkPlan plan) {
        look();
        return plan;
      }
    };
  }

  private void look() {
    try {
      Object query = RunningSink.queryOfThisThread(session);
      String run = query == null ? seen : RunningSink.call(query, "runId").toString();
      if (!run.equals(seen)) {
        seen = run;
        replaceList(query, RunningSink.call(query, "sink"));
      }
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      // The batch goes on: it would without the package, too.
      LOG.warn(
          "This Spark's file sink is not as expected, so its list gets no entry for a repartitioning. What to do: if"
              + " readers fail with BATCH_METADATA_NOT_FOUND, run pyspark-statestore sink verify DIRECTORY --repair"
              + " --checkpoint PATH",
          e);
    }
  }

  @SuppressWarnings("unchecked")
  private void replaceList(Object query, Object sink) throws ReflectiveOperationException {
    if (sink.getClass().getSimpleName().equals("FileStreamSink")) {
      Path checkpoint = new Path((String) RunningSink.call(query, "resolvedCheckpointRoot"));
      String path = RunningSink.field(sink, "logPath").toString();
      Option<Object> retention = (Option<Object>) RunningSink.field(sink, "retention");
      SparkSession ofSink = (SparkSession) RunningSink.field(sink, "sparkSession");
      Field list = RunningSink.fieldOf(sink, "fileLog");
      list.set(sink, new FilledSinkLog(ofSink, path, retention, new ListHoles(checkpoint, conf.get())));
    }
  }
}
