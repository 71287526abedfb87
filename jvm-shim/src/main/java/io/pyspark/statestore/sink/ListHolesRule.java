package io.pyspark.statestore.sink;

import io.pyspark.statestore.ShellWord;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has {@link ListHoles} filled once in each run of a query. Spark applies such a rule when it plans a batch: the batch
 * is in the offset log then, and not yet in the sink's list. The plan stays as it is.
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
    Object query = null;
    Object sink = null;
    try {
      query = RunningSink.queryOfThisThread(session);
      String run = query == null ? seen : RunningSink.call(query, "runId").toString();
      if (run.equals(seen)) {
        return;
      }
      sink = RunningSink.call(query, "sink");
      if (sink.getClass().getSimpleName().equals("FileStreamSink")) {
        ListHoles.fill(query, sink, conf.get());
      }
      seen = run;
    } catch (IOException | ReflectiveOperationException | RuntimeException | LinkageError e) {
      failed(ListHoles.causeOf(e), sink);
    }
  }

  /** The batch goes on: it would without the package, too. */
  private static void failed(Throwable cause, Object sink) {
    if (cause instanceof InterruptedException
        || cause instanceof InterruptedIOException
        || cause instanceof ClosedByInterruptException) {
      Thread.currentThread().interrupt(); // somebody stops the query
      return;
    }
    LOG.warn(
        "Whether the list of {} lacks the entry of a repartitioning was not found out. If readers fail with"
            + " BATCH_METADATA_NOT_FOUND, run: pyspark-statestore sink verify {} --repair --checkpoint PATH",
        sink,
        ShellWord.of(String.valueOf(sink).replaceFirst("^FileSink\\[(.*)]$", "$1")),
        cause);
  }
}
