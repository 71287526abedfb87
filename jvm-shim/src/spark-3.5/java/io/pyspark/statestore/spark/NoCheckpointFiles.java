package io.pyspark.statestore.spark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import scala.collection.immutable.Map;

/** Tells who asks for the data source {@code checkpoint_files} what to do, as Spark 3.5 has no Python data sources. */
public final class NoCheckpointFiles implements DataSourceRegister, RelationProvider {
  @Override
  public String shortName() {
    return "checkpoint_files";
  }

  @Override
  public BaseRelation createRelation(SQLContext context, Map<String, String> options) {
    throw new IllegalArgumentException(
        "[PSS_UNSUPPORTED_SPARK] checkpoint_files needs Spark 4.0 or newer; Spark 3.5 has no data sources in Python."
            + " Use Checkpoint(path) of pyspark_statestore in Python, or the command line: pyspark-statestore --help.");
  }
}
