package io.pyspark.statestore.spark;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.files.Storage;
import io.pyspark.statestore.fs.MergedFileSystem;
import io.pyspark.statestore.fs.Schemes;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.Field;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Makes the directories of partitions that a copy of a checkpoint has lost. Merged state needs none, and copies by
 * {@code rclone}, between buckets or with git have no empty ones. But at a plain location Spark's reader of state takes
 * the directories for the partitions, and would answer without the rows of those that have none.
 */
final class PartitionDirectories {
  private static final Logger LOG = LoggerFactory.getLogger(PartitionDirectories.class);

  private PartitionDirectories() {}

  /** Makes what is missing where the operator reads state. */
  static void check(SparkSession session, LogicalPlan operator) {
    Table table = tableOf(operator);
    if (table != null && table.getClass().getSimpleName().equals("StateTable")) {
      check(session, table);
    }
  }

  private static Table tableOf(LogicalPlan operator) {
    if (operator instanceof DataSourceV2ScanRelation scan) {
      return scan.relation().table();
    }
    return operator instanceof DataSourceV2Relation relation ? relation.table() : null;
  }

  private static void check(SparkSession session, Table table) {
    Path operator;
    try {
      Field field = table.getClass().getDeclaredField("sourceOptions");
      field.setAccessible(true);
      Object options = field.get(table);
      Path checkpoint = new Path((String) options.getClass().getMethod("resolvedCpLocation").invoke(options));
      Object id = options.getClass().getMethod("operatorId").invoke(options);
      operator = new Path(new Path(checkpoint, "state"), String.valueOf(id));
    } catch (ReflectiveOperationException | RuntimeException e) {
      LOG.info("This Spark does not say which state it reads; directories that are missing are not made", e);
      return;
    }
    if (!Schemes.isMerged(operator)) {
      makeMissing(operator, SessionInternals.hadoopConf(session));
    }
  }

  private static void makeMissing(Path operator, Configuration conf) {
    Set<String> missing = new TreeSet<>();
    try {
      FileSystem fs = operator.getFileSystem(conf);
      if (!fs.exists(new Path(operator.getParent(), Storage.DIRECTORY))) {
        return;
      }
      Path merged = Schemes.toMerged(fs.makeQualified(operator));
      // A file in the way of a directory is listed in its place.
      missing.addAll(partitions(MergedFileSystem.of(merged, conf), merged, false));
      missing.removeAll(partitions(fs, operator, true));
      for (String partition : missing) {
        if (!fs.mkdirs(new Path(operator, partition))) {
          throw new IOException("the file system did not make " + partition + " and did not say why");
        }
      }
    } catch (IOException e) {
      throw refusal(operator, missing, e);
    }
    if (!missing.isEmpty()) {
      LOG.info("Made the directories of the partitions {} in {}, which a copy had lost", missing, operator);
    }
  }

  private static Set<String> partitions(FileSystem fs, Path operator, boolean mustBeDirectories) throws IOException {
    Set<String> found = new TreeSet<>();
    try {
      for (FileStatus child : fs.listStatus(operator)) {
        if ((child.isDirectory() || !mustBeDirectories) && child.getPath().getName().matches("\\d+")) {
          found.add(child.getPath().getName());
        }
      }
    } catch (FileNotFoundException e) {
      // None was copied.
    }
    return found;
  }

  private static IllegalArgumentException refusal(Path operator, Set<String> missing, IOException why) {
    String message =
        "Spark's reader would not find all partitions in "
            + operator
            + ": a copy of the checkpoint has lost the directories of "
            + (missing.isEmpty() ? "some" : missing)
            + ", and they cannot be made: "
            + why.getMessage()
            + ". Read merged_path(\"<the checkpoint>\") instead, which needs none, or make them.";
    return new IllegalArgumentException(
        new StateStoreFilesException(Id.PSS_MISSING_DIRECTORIES, message).getMessage(), why);
  }
}
