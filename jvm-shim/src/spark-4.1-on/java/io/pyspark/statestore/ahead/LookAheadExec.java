package io.pyspark.statestore.ahead;

import io.pyspark.statestore.metrics.StoreFigures.LookAhead;
import java.io.Serializable;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;

/** A node of a plan that hands on its child's rows, and fetches what the stateful operator above will read for them. */
public final class LookAheadExec extends SparkPlan {
  private static final long serialVersionUID = 1;

  private final SparkPlan child;
  private final StateKeys keys;
  private final Settings settings;
  private transient Figures figures;

  /**
   * The options of looking ahead.
   *
   * @param rows of a window, at most
   * @param bytes of all rows in memory
   * @param parallelism requests of a store that are under way at the same time
   */
  record Settings(int rows, long bytes, int parallelism) implements Serializable {
    @Override
    public String toString() {
      return "windows of " + rows + " rows";
    }
  }

  /** Spark makes copies of nodes by reflection, of what {@link #productElement} says. */
  public LookAheadExec(SparkPlan child, StateKeys keys, Settings settings) {
    this.child = child;
    this.keys = keys;
    this.settings = settings;
  }

  @Override
  public RDD<InternalRow> doExecute() {
    ClassTag<InternalRow> rows = ClassTag$.MODULE$.apply(InternalRow.class);
    return child.execute().mapPartitionsWithIndex(new Ahead(keys, settings, figures()), true, rows);
  }

  /** What a task makes of its rows. */
  private static final class Ahead extends AbstractFunction2<Object, Iterator<InternalRow>, Iterator<InternalRow>>
      implements Serializable {
    private static final long serialVersionUID = 1;

    private final StateKeys keys;
    private final Settings settings;
    private final Figures figures;

    Ahead(StateKeys keys, Settings settings, Figures figures) {
      this.keys = keys;
      this.settings = settings;
      this.figures = figures;
    }

    @Override
    public Iterator<InternalRow> apply(Object partition, Iterator<InternalRow> rows) {
      return new RowsAhead(rows, settings, figures, keys, TaskContext.get(), (Integer) partition);
    }
  }

  /** What was done, for Spark's pages. */
  static final class Figures implements Serializable {
    private static final long serialVersionUID = 1;

    private final SQLMetric windows;
    private final SQLMetric keys;
    private final SQLMetric present;
    private final SQLMetric blocks;

    Figures(SparkContext spark) {
      windows = SQLMetrics.createMetric(spark, "number of windows");
      keys = SQLMetrics.createMetric(spark, "number of keys asked for");
      present = SQLMetrics.createMetric(spark, "number of keys that were there");
      blocks = SQLMetrics.createMetric(spark, "number of blocks fetched");
    }

    /** Adds a window. In the thread of the task. */
    void add(LookAhead window) {
      windows.add(window.windows());
      keys.add(window.keys());
      present.add(window.present());
      blocks.add(window.blocks());
    }

    private Map<String, SQLMetric> byName() {
      Map<String, SQLMetric> byName = new LinkedHashMap<>();
      byName.put("lookAheadWindows", windows);
      byName.put("lookAheadKeys", keys);
      byName.put("lookAheadPresentKeys", present);
      byName.put("lookAheadFetchedBlocks", blocks);
      return byName;
    }
  }

  private synchronized Figures figures() {
    if (figures == null) {
      figures = new Figures(sparkContext());
    }
    return figures;
  }

  @Override
  public scala.collection.immutable.Map<String, SQLMetric> metrics() {
    return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(figures().byName()));
  }

  @Override
  public Seq<Attribute> output() {
    return child.output();
  }

  @Override
  public Partitioning outputPartitioning() {
    return child.outputPartitioning();
  }

  @Override
  public Seq<SortOrder> outputOrdering() {
    return child.outputOrdering();
  }

  @Override
  public Seq<SparkPlan> children() {
    return CollectionConverters.asScala(java.util.List.of(child)).toSeq();
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return new LookAheadExec(children.apply(0), keys, settings);
  }

  @Override
  public int productArity() {
    return 3;
  }

  @Override
  public Object productElement(int number) {
    return switch (number) {
      case 0 -> child;
      case 1 -> keys;
      default -> settings;
    };
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof LookAheadExec;
  }
}
