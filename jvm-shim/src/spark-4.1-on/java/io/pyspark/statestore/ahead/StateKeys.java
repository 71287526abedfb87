package io.pyspark.statestore.ahead;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import scala.collection.immutable.Seq;

/**
 * What an operator reads of its stores for a row of its input.
 *
 * @param info the operator, its checkpoint and its version
 * @param key of state, made of a row
 * @param input the columns of a row
 * @param reads what is read for each key
 * @param counted what is read then, of values that are numbered; null where nothing is
 */
record StateKeys(
    StatefulOperatorStateInfo info, Seq<Expression> key, Seq<Attribute> input, List<Read> reads, Counted counted)
    implements Serializable {
  private static final String DEFAULT = "default";

  /** How a key is read. */
  enum How {
    /** Its row. */
    ROW,
    /** All rows whose keys begin with it. */
    PREFIX,
    /** The same, where a row may have several values. */
    PREFIX_OF_LISTS
  }

  /**
   * A read for each key.
   *
   * @param store the store's name
   * @param family the name of the column family
   */
  record Read(String store, String family, How how) implements Serializable {}

  /**
   * A key's row in one place says how many values it has, which are in another place by the key and a number.
   *
   * @param counts where it says so
   * @param values where they are
   */
  record Counted(Read counts, Read values) implements Serializable {}

  /** Of an operator with one row, or rows that begin so, for each key. */
  static StateKeys of(StatefulOperatorStateInfo info, Seq<Expression> key, Seq<Attribute> input, How how) {
    return new StateKeys(info, key, input, List.of(new Read(DEFAULT, DEFAULT, how)), null);
  }

  /**
   * Of one side of a join: it looks for the key on the other side, and counts its own values. See Spark's
   * SymmetricHashJoinStateManager.
   *
   * @param format Spark's version of the join's state
   * @param own the name of the side that the rows come from, left or right
   * @param other the name of the other one
   */
  static StateKeys ofJoin(
      StatefulOperatorStateInfo info, Seq<Expression> key, Seq<Attribute> input, int format, String own, String other) {
    if (format >= 4) {
      Read read = new Read(DEFAULT, other + "-keyWithTsToValues", How.PREFIX_OF_LISTS);
      return new StateKeys(info, key, input, List.of(read), null);
    }
    Read counts = row(other + "-keyToNumValues", format);
    Read values = row(other + "-keyWithIndexToValue", format);
    List<Read> reads = List.of(row(own + "-keyToNumValues", format), counts);
    return new StateKeys(info, key, input, reads, new Counted(counts, values));
  }

  /** Formats 1 and 2 have a store of each name, and format 3 a column family. */
  private static Read row(String name, int format) {
    return format == 3 ? new Read(DEFAULT, name, How.ROW) : new Read(name, DEFAULT, How.ROW);
  }

  /** What a plan shows of it. */
  @Override
  public String toString() {
    return key.mkString("[", ", ", "]");
  }
}
