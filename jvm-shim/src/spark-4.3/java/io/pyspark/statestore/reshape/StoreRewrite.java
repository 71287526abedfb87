package io.pyspark.statestore.reshape;

import java.io.Serializable;
import java.math.BigInteger;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import java.util.stream.IntStream;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions;
import org.apache.spark.sql.execution.datasources.v2.state.StateStoreInputPartition;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One store of an operator, with all of its partitions: where its rows come from, and where they go. Tasks get it whole.
 *
 * @param operator the id of the operator
 * @param operatorName Spark's name for it
 * @param storeName the name of the store
 * @param location the checkpoint
 * @param batch the batch whose state is written
 * @param partitionsBefore how many partitions there are
 * @param partitions how many there will be
 * @param isSingle whether everything is in partition 0, and stays there
 * @param isSorted whether the reader gives the rows of a column family in the order of their keys, as RocksDB does
 * @param reader Spark's reader of all column families of a partition
 * @param options of the reader
 * @param schema of the reader's rows
 * @param families of the store, by name
 * @param schemas what Spark needs to read rows that have older schemas
 * @param conf of the store that is written
 * @param hadoop settings of the session
 */
record StoreRewrite(
    long operator,
    String operatorName,
    String storeName,
    String location,
    long batch,
    int partitionsBefore,
    int partitions,
    boolean isSingle,
    boolean isSorted,
    PartitionReaderFactory reader,
    StateSourceOptions options,
    StructType schema,
    scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo> families,
    Option<StateSchemaProvider> schemas,
    StateStoreConf conf,
    SerializableConfiguration hadoop)
    implements Serializable {
  static final String HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider";
  /** The first column of Spark's reader: the part of a key that says in which partition it is. */
  static final String PARTITION_KEY = "partition_key";

  private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";
  private static final String COUNT_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows";
  private static final String DEFAULT_FAMILY = "default";

  /**
   * What is known of a store.
   *
   * @param found the store; its conf, reader, options and schema are replaced
   * @param last the batch whose state is read
   * @param sqlConf the settings that its batch has
   * @param provider Spark's class that keeps it
   * @param next Spark's class that is to keep it
   */
  static StoreRewrite of(
      StoreRewrite found, SparkSession session, long last, SQLConf sqlConf, String provider, String next)
      throws ReflectiveOperationException {
    Dataset<Row> rows = session.read()
        .format("statestore")
        .option("path", found.location)
        .option("batchId", last)
        .option("operatorId", found.operator)
        .option("storeName", found.storeName)
        // Only then does Spark say by what it partitions.
        .option("_readAllColumnFamilies", "true")
        .load();
    Batch scan = scanned((org.apache.spark.sql.classic.Dataset<Row>) rows);
    PartitionReaderFactory reader = scan.createReaderFactory();
    // Spark reads all families of RocksDB only, so that is the class that the log has shown it.
    new Internals(reader).set("storeConf", conf(uncounted(sqlConf), provider));
    return new StoreRewrite(
        found.operator, found.operatorName, found.storeName, found.location, found.batch, found.partitionsBefore,
        found.partitions, found.isSingle, !provider.equals(HEAP),
        reader,
        // Its own plan has a partition for each directory, of which merged state needs none.
        (StateSourceOptions) new Internals(scan).get("sourceOptions"),
        rows.schema(), found.families, found.schemas, conf(sqlConf, next), found.hadoop);
  }

  private static Batch scanned(org.apache.spark.sql.classic.Dataset<Row> rows) {
    SparkPlan plan = rows.queryExecution().sparkPlan();
    while (!(plan instanceof BatchScanExec)) {
      plan = plan.children().head();
    }
    return ((BatchScanExec) plan).batch();
  }

  /** Settings with which a reader counts no rows: for that, RocksDB would look up each key that a changelog has. */
  private static SQLConf uncounted(SQLConf sqlConf) {
    SQLConf changed = sqlConf.clone();
    changed.setConfString(COUNT_ROWS, "false");
    return changed;
  }

  private static StateStoreConf conf(SQLConf sqlConf, String provider) {
    SQLConf changed = sqlConf.clone();
    changed.setConfString(PROVIDER, provider);
    return StateStoreConf.apply(changed);
  }

  /** Tells the store from all others of the query. */
  String name() {
    return operator + "/" + storeName;
  }

  /** Why the store cannot be written for its next class; empty if it can. */
  String obstacle() {
    if (!isHeap()) {
      return "";
    }
    if (operatorName.startsWith("transformWithState")) {
      return "operator " + operator + " is " + operatorName + ", which Spark runs on RocksDB only";
    }
    if (families.size() != 1 || !families.contains(DEFAULT_FAMILY)) {
      return "operator " + operator + " (" + operatorName + ") has several column families in store '" + storeName
          + "', and a heap store has none";
    }
    return "";
  }

  /** Whether it is written for Spark's heap store. */
  boolean isHeap() {
    return conf.providerClass().equals(HEAP);
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

  /** All rows of an old partition. */
  Iterator<InternalRow> readAll(int from) {
    return new MovedRows(this, new int[] {from}, IntStream.range(0, partitions).toArray());
  }

  /** Opens an old partition. */
  PartitionReader<InternalRow> open(int from) {
    return reader.createReader(new StateStoreInputPartition(from, UUID.randomUUID(), options));
  }

  /** Says for a row in which of the old partitions it has to be, and in which of the new ones. */
  UnsafeProjection places() {
    StructField key = schema.apply(PARTITION_KEY);
    Expression column = new BoundReference(schema.fieldIndex(PARTITION_KEY), key.dataType(), key.nullable());
    return UnsafeProjection.create(seq(List.of(partitionOf(column, partitionsBefore), partitionOf(column, partitions))));
  }

  /** As a shuffle decides it. */
  private static Expression partitionOf(Expression column, int count) {
    return new HashPartitioning(seq(List.of(column)), count).partitionIdExpression();
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
