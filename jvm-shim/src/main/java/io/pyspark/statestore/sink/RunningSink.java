package io.pyspark.statestore.sink;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.sink.join.WrittenFormat;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/**
 * What Spark's file sink knows of the batch that it writes and does not tell its commit protocol. It is asked of the
 * query that this thread runs, by reflection: Spark moves its classes from package to package.
 *
 * @param query that this thread runs
 * @param written in what form it writes the batch
 */
record RunningSink(StreamingQuery query, WrittenFormat written) {
  /** A local property that Spark sets in the thread of each query. */
  private static final String QUERY_ID = "sql.streaming.queryId";

  /**
   * Finds the sink of the query that this thread runs.
   *
   * @throws StateStoreFilesException PSS_SINK_COMPACTION_FAILED if it runs none that writes files
   */
  static RunningSink ofThisThread() throws StateStoreFilesException {
    SparkSession session = SparkSession.active();
    try {
      Object query = queryOfThisThread(session);
      if (query == null) {
        throw notFound("this thread runs no streaming query", null);
      }
      Object sink = call(query, "sink");
      Object execution = call(query, "lastExecution");
      StructType written = ((QueryExecution) execution).analyzed().schema();
      @SuppressWarnings("unchecked")
      scala.collection.immutable.Map<String, String> options =
          (scala.collection.immutable.Map<String, String>) field(sink, "options");
      List<String> partitions = new ArrayList<>();
      for (Iterator<?> names = ((scala.collection.Iterable<?>) field(sink, "partitionColumnNames")).iterator();
          names.hasNext(); ) {
        partitions.add((String) names.next());
      }
      StructType schema = without(written, partitions, session);
      FileFormat format = (FileFormat) field(sink, "fileFormat");
      return new RunningSink((StreamingQuery) query, new WrittenFormat(session, format, options, schema, false));
    } catch (ReflectiveOperationException | ClassCastException e) {
      throw notFound("this Spark's file sink is not as expected", e);
    }
  }

  /** The query that this thread runs; null without one. */
  static Object queryOfThisThread(SparkSession session) throws ReflectiveOperationException {
    String id = session.sparkContext().getLocalProperty(QUERY_ID);
    return id == null ? null : query(session, UUID.fromString(id));
  }

  /** A query that runs; null if it does not. */
  static Object query(SparkSession session, UUID id) throws ReflectiveOperationException {
    Object queries = call(call(session, "sharedState"), "activeStreamingQueries");
    return ((Map<?, ?>) queries).get(id);
  }

  /** Whether the query ends because the user stops it: then nothing has failed that Spark does not know of. */
  boolean isStopping() {
    return !query.isActive();
  }

  private static StructType without(StructType written, List<String> partitions, SparkSession session) {
    boolean exact = Boolean.parseBoolean(session.conf().get("spark.sql.caseSensitive", "false"));
    List<StructField> kept = new ArrayList<>();
    for (StructField field : written.fields()) {
      boolean isPartition =
          partitions.stream().anyMatch(p -> exact ? p.equals(field.name()) : p.equalsIgnoreCase(field.name()));
      if (!isPartition) {
        kept.add(field);
      }
    }
    return new StructType(kept.toArray(new StructField[0]));
  }

  static Object call(Object object, String method) throws ReflectiveOperationException {
    return object.getClass().getMethod(method).invoke(object);
  }

  static Object field(Object object, String name) throws ReflectiveOperationException {
    return fieldOf(object, name).get(object);
  }

  static Field fieldOf(Object object, String name) throws ReflectiveOperationException {
    Field field = object.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  private static StateStoreFilesException notFound(String why, Exception cause) {
    return new StateStoreFilesException(
        Id.PSS_SINK_COMPACTION_FAILED,
        "The file sink of this batch was not found: "
            + why
            + ". Unset spark.sql.streaming.commitProtocolClass to write files as stock Spark does.",
        cause);
  }
}
