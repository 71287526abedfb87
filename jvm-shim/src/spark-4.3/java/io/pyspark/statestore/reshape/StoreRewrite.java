package io.pyspark.statestore.reshape;

import java.io.Serializable;
import java.math.BigInteger;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One store of an operator, with all of its partitions: where its rows come from, and where they go. Tasks get it
 * whole.
 *
 * @param operator the id of the operator
 * @param operatorName Spark's name for it
 * @param storeName the name of the store
 * @param old where its rows come from
 * @param partitionsBefore how many partitions there are
 * @param location the checkpoint
 * @param batch the batch whose state is written
 * @param partitions how many partitions there will be
 * @param isSingle whether everything is in partition 0, and stays there
 * @param isSplit whether new partitions are split off old ones, whose files they have already: what is written deletes
 *     the rows of the others
 * @param families of the store, by name
 * @param schemas what Spark needs to read rows that have older schemas
 * @param conf of the store that is written
 * @param hadoop settings of the session
 */
record StoreRewrite(
    long operator,
    String operatorName,
    String storeName,
    OldStore old,
    int partitionsBefore,
    String location,
    long batch,
    int partitions,
    boolean isSingle,
    boolean isSplit,
    scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo> families,
    Option<StateSchemaProvider> schemas,
    StateStoreConf conf,
    SerializableConfiguration hadoop)
    implements Serializable {
  static final String DEFAULT_FAMILY = "default";

  /** A task writes so many new partitions at most. Each has a store open until the task ends. */
  static final int MOST_CHILDREN = 8;

  private static final String JOIN = "symmetricHashJoin";

  /**
   * The last format of the state of joins whose keys Spark takes apart. In the next one, times are in keys, and its
   * reader gives the whole key for the part by which it is partitioned: with one partition, nothing would show that.
   */
  private static final int LAST_KNOWN_JOIN = 3;

  /** Tells the store from all others of the query. */
  String name() {
    return operator + "/" + storeName;
  }

  /**
   * Why the store cannot be written in other partitions, or for its next class; empty if it can.
   *
   * @throws IllegalStateException if Spark does not know which part of a key says in which partition it is
   */
  String obstacle() {
    try {
      old.partitionKeys(0);
      places();
      int format = old.formatVersion();
      if (operatorName.equals(JOIN) && format > LAST_KNOWN_JOIN) {
        return "operator "
            + operator
            + " ("
            + operatorName
            + ") has state format "
            + format
            + ", of which Spark does not know which part of a key says in which partition it is";
      }
    } catch (Exception | AssertionError e) {
      throw OldStore.refused(operator, storeName, e);
    }
    if (!isHeap()) {
      return "";
    }
    if (operatorName.startsWith("transformWithState")) {
      return "operator " + operator + " is " + operatorName + ", which Spark runs on RocksDB only";
    }
    if (families.size() != 1 || !families.contains(DEFAULT_FAMILY)) {
      return "operator "
          + operator
          + " ("
          + operatorName
          + ") has several column families in store '"
          + storeName
          + "', and a heap store has none";
    }
    return "";
  }

  /** Whether new partitions can be split off old ones: each gets rows of one only, and of each row the key is known. */
  boolean canBeSplit() {
    return !isSingle
        && partitions > partitionsBefore
        && partitions % partitionsBefore == 0
        && partitions / partitionsBefore <= MOST_CHILDREN
        && suitsSortedFiles();
  }

  /** Whether {@link SortedFiles} can write it: its rows come in the order of their keys, and a key has one value. */
  boolean suitsSortedFiles() {
    return old.isSorted()
        && !isHeap()
        && CollectionConverters.asJava(families).values().stream()
            .noneMatch(StatePartitionWriterColumnFamilyInfo::useMultipleValuesPerKey);
  }

  /** Whether it is written for Spark's heap store. */
  boolean isHeap() {
    return conf.providerClass().equals(OldStore.HEAP);
  }

  /** The old partitions that a new one gets something of. */
  int[] parents(int to) {
    return every(step(), to, partitionsBefore);
  }

  /** The new partitions that get something of the same old ones as this new one. */
  int[] siblings(int to) {
    return every(step(), to, partitions);
  }

  /** How many groups of old partitions there are that have no new partition in common. */
  int step() {
    return BigInteger.valueOf(partitionsBefore).gcd(BigInteger.valueOf(partitions)).intValue();
  }

  private static int[] every(int step, int one, int end) {
    return IntStream.iterate(one % step, each -> each < end, each -> each + step).toArray();
  }

  /** Says for a row in which of the old partitions it has to be, and in which of the new ones. */
  UnsafeProjection places() {
    Expression key = old.partitionKey();
    return UnsafeProjection.create(seq(List.of(partitionOf(key, partitionsBefore), partitionOf(key, partitions))));
  }

  /** As a shuffle decides it. */
  private static Expression partitionOf(Expression key, int count) {
    return new HashPartitioning(seq(List.of(key)), count).partitionIdExpression();
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
