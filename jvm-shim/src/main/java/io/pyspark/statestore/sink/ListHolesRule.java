package io.pyspark.statestore.sink;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Gives the file sink of a query a {@link FilledSinkLog}. Plans stay as they are.
 *
 * <p>Spark checks the plan of a query before that starts: see {@link Check}. A session to which the rules were added
 * while it ran does not, and has a {@link Listener}. Where neither is, this looks when a run plans its first batch,
 * which is before the batch is written.
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
        replaceListOf(query, conf);
      }
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      notAsExpected(e);
    }
  }

  private static void replaceListOf(Object query, Supplier<Configuration> conf) throws ReflectiveOperationException {
    String checkpoint = (String) RunningSink.call(query, "resolvedCheckpointRoot");
    replaceList(RunningSink.call(query, "sink"), checkpoint, conf);
  }

  /** Sees a query when it has started, before it enters a batch: Spark tells of a start in the query's own thread. */
  public static final class Listener extends StreamingQueryListener {
    private static final long serialVersionUID = 1;

    private final SparkSession session;
    private final Supplier<Configuration> conf;

    /** Of a session, with the configuration that its file systems have. */
    public Listener(SparkSession session, Supplier<Configuration> conf) {
      this.session = session;
      this.conf = conf;
    }

    @Override
    public void onQueryStarted(QueryStartedEvent event) {
      try {
        Object query = RunningSink.query(session, event.id());
        if (query != null) {
          replaceListOf(query, conf);
        }
      } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
        notAsExpected(e);
      }
    }

    @Override
    public void onQueryProgress(QueryProgressEvent event) {}

    @Override
    public void onQueryTerminated(QueryTerminatedEvent event) {}
  }

  /** Sees a query before it starts. */
  public static final class Check extends AbstractFunction1<LogicalPlan, BoxedUnit> {
    private final Supplier<Configuration> conf;

    /** Of a session that has the configuration. */
    public Check(Supplier<Configuration> conf) {
      this.conf = conf;
    }

    @Override
    public BoxedUnit apply(LogicalPlan plan) {
      try {
        if (plan instanceof WriteToStream write) {
          replaceList(write.sink(), write.resolvedCheckpointLocation(), conf);
        }
      } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
        notAsExpected(e);
      }
      return BoxedUnit.UNIT;
    }
  }

  @SuppressWarnings("unchecked")
  private static void replaceList(Object sink, String checkpoint, Supplier<Configuration> conf)
      throws ReflectiveOperationException {
    if (!sink.getClass().getSimpleName().equals("FileStreamSink")) {
      return;
    }
    Field list = RunningSink.fieldOf(sink, "fileLog");
    if (list.get(sink) instanceof FilledSinkLog) {
      return;
    }
    Path path = (Path) RunningSink.field(sink, "logPath");
    ListHoles holes = new ListHoles(new Path(checkpoint), conf.get());
    try {
      holes.look(path);
    } catch (IOException e) {
      LOG.debug("The logs of the query at {} could not be read yet", checkpoint, e);
    }
    SparkSession session = (SparkSession) RunningSink.field(sink, "sparkSession");
    Option<Object> retention = (Option<Object>) RunningSink.field(sink, "retention");
    list.set(sink, new FilledSinkLog(session, path.toString(), retention, holes));
  }

  /** The query goes on: it would without the package, too. */
  private static void notAsExpected(Throwable e) {
    LOG.warn(
        "This Spark's file sink is not as expected, so its list gets no entry for a repartitioning. What to do: if"
            + " readers fail with BATCH_METADATA_NOT_FOUND, run pyspark-statestore sink verify DIRECTORY --repair"
            + " --checkpoint PATH",
        e);
  }
}
