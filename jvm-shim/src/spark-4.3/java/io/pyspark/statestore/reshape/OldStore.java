package io.pyspark.statestore.reshape;

import java.io.IOException;
import java.io.Serializable;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.state.StatePartitionReaderBase;
import org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions;
import org.apache.spark.sql.execution.datasources.v2.state.StateStoreInputPartition;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StatePartitionKeyExtractor;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A store as a batch left it: where rows are taken from. Tasks get it whole.
 *
 * @param reader Spark's reader of all column families of a partition
 * @param options of the reader
 * @param schema of the reader's rows
 * @param isSorted whether the reader gives the rows of a column family in the order of their keys, as RocksDB does
 */
record OldStore(PartitionReaderFactory reader, StateSourceOptions options, StructType schema, boolean isSorted)
    implements Serializable {
  static final String HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider";

  /** The first column of Spark's reader: the part of a key that says in which partition it is. */
  static final String PARTITION_KEY = "partition_key";

  private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";
  private static final String CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled";
  private static final String COUNT_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows";

  /**
   * Asks Spark's source of state for its reader.
   *
   * @param location the checkpoint
   * @param batch that left the state
   * @param sqlConf the settings that the batch had
   * @param provider Spark's class that keeps the state
   */
  static OldStore of(
      SparkSession session, String location, long operator, String store, long batch, SQLConf sqlConf, String provider)
      throws ReflectiveOperationException {
    Dataset<Row> rows =
        session
            .read()
            .format("statestore")
            .option("path", location)
            .option("batchId", batch)
            .option("operatorId", operator)
            .option("storeName", store)
            // Only then does Spark say by what it partitions.
            .option("_readAllColumnFamilies", "true")
            .load();
    Batch scan = scanned((org.apache.spark.sql.classic.Dataset<Row>) rows);
    PartitionReaderFactory reader = scan.createReaderFactory();
    // Spark reads all families of RocksDB only, so that is the class that the log has shown it.
    new Internals(reader).set("storeConf", conf(uncounted(sqlConf), provider));
    // Its own plan has a partition for each directory, of which merged state needs none.
    StateSourceOptions options = (StateSourceOptions) new Internals(scan).get("sourceOptions");
    return new OldStore(reader, options, rows.schema(), !provider.equals(HEAP));
  }

  /** Makes the error that Spark cannot read a store. */
  static IllegalStateException refused(long operator, String store, Throwable thrown) {
    IllegalStateException refused =
        new IllegalStateException(
            "Spark says of operator " + operator + ", store '" + store + "': " + innermost(thrown).getMessage());
    refused.addSuppressed(thrown);
    return refused;
  }

  private static Throwable innermost(Throwable thrown) {
    return thrown.getCause() == null ? thrown : innermost(thrown.getCause());
  }

  /** Settings with which a store is kept by a class. */
  static StateStoreConf conf(SQLConf sqlConf, String provider) {
    SQLConf changed = sqlConf.clone();
    changed.setConfString(PROVIDER, provider);
    return StateStoreConf.apply(changed);
  }

  /** Settings with which a reader counts no rows: for that, RocksDB would look up each key that a changelog has. */
  private static SQLConf uncounted(SQLConf sqlConf) {
    return without(sqlConf, COUNT_ROWS);
  }

  /** Settings with which a store's next version is a snapshot: what RocksDB takes in as files is in no changelog. */
  static SQLConf withoutChangelogs(SQLConf sqlConf) {
    return without(sqlConf, CHANGELOGS);
  }

  private static SQLConf without(SQLConf sqlConf, String setting) {
    SQLConf changed = sqlConf.clone();
    changed.setConfString(setting, "false");
    return changed;
  }

  private static Batch scanned(org.apache.spark.sql.classic.Dataset<Row> rows) {
    SparkPlan plan = rows.queryExecution().sparkPlan();
    while (!(plan instanceof BatchScanExec)) {
      plan = plan.children().head();
    }
    return ((BatchScanExec) plan).batch();
  }

  /** Opens a partition. */
  PartitionReader<InternalRow> open(int partition) {
    return reader.createReader(new StateStoreInputPartition(partition, UUID.randomUUID(), options));
  }

  /** The id of a partition's version, in Spark's checkpoint format 2. */
  Option<String> checkpointId(int partition) {
    return ((StatePartitionReaderBase) open(partition)).getStartStoreUniqueId();
  }

  /** Of each column family of a partition, Spark's way to find the part of a key that says in which partition it is. */
  Map<String, StatePartitionKeyExtractor> partitionKeys(int partition) throws ReflectiveOperationException {
    return partitionKeys(open(partition));
  }

  /** The format in which an operator has its state; 0 where it has one only. */
  int formatVersion() throws ReflectiveOperationException {
    Option<?> version = (Option<?>) new Internals(open(0)).call("stateFormatVersion");
    return version.isDefined() ? ((Number) version.get()).intValue() : 0;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, StatePartitionKeyExtractor> partitionKeys(PartitionReader<InternalRow> open)
      throws ReflectiveOperationException {
    return CollectionConverters.asJava(
        (scala.collection.immutable.Map<String, StatePartitionKeyExtractor>)
            new Internals(open).call("cfPartitionKeyExtractors"));
  }

  /**
   * The rows of a partition in RocksDB.
   *
   * @param reader Spark's, which has the version open
   * @param rows what the version has
   * @param partitionKeys as {@link #partitionKeys(int)}
   */
  record Rows(
      PartitionReader<InternalRow> reader, SortedRows rows, Map<String, StatePartitionKeyExtractor> partitionKeys)
      implements AutoCloseable {
    @Override
    public void close() throws IOException {
      reader.close();
    }
  }

  /** Opens a partition of a RocksDB store. */
  Rows rows(int partition) throws ReflectiveOperationException, IOException {
    PartitionReader<InternalRow> open = open(partition);
    Rows rows = null;
    try {
      Internals internals = new Internals(open);
      internals.call("store");
      RocksDBStateStoreProvider provider = (RocksDBStateStoreProvider) ((StatePartitionReaderBase) open).provider();
      rows =
          new Rows(open, new SortedRows(provider, (Boolean) internals.call("useColumnFamilies")), partitionKeys(open));
      return rows;
    } finally {
      if (rows == null) {
        open.close();
      }
    }
  }

  /** The part of a row that says in which partition it is. */
  Expression partitionKey() {
    StructField key = schema.apply(PARTITION_KEY);
    return new BoundReference(schema.fieldIndex(PARTITION_KEY), key.dataType(), key.nullable());
  }
}
